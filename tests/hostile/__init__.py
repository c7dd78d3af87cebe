"""A corpus of broken, odd and malicious files."""
