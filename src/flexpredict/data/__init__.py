"""Images on their way to the model: where they come from, how they are cropped, in which order they come."""
