"""Reads published checkpoints: finds the encoder in a file and how to build it."""
