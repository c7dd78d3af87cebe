"""The HTML page of runs and encoders."""
