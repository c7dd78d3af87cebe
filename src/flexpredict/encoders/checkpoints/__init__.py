"""Reading other people's checkpoints: what is in a file, and which encoder it makes."""
