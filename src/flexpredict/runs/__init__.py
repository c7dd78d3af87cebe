"""What a run folder holds: config, metrics, checkpoints, the encoder file."""
