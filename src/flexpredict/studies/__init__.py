"""Ablations and analyses that repeat those of the paper."""
