"""What a model sees, as data for the page: features, predictions and positions to explore, and pictures."""
