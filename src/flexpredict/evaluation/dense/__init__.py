"""Dense tasks: a head on frozen patch features, whose answers are up-sampled to maps with a number for each pixel."""
