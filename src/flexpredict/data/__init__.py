"""Images for the model: their sources, crops and order."""
