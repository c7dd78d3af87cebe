"""The networks: positions, encoder, predictor."""
