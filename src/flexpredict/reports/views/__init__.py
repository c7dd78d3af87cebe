"""A model's view of images as data for the page: features, predictions, positions, and pictures."""
