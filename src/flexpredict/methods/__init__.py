"""Objectives, one per file; what they share, and their interface to the training loop, is in `method`."""
