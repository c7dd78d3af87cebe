"""The built-in scenes."""
