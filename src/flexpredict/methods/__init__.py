"""Objectives, one a file; what they share, and all that the training loop knows of them, is in `method`."""
