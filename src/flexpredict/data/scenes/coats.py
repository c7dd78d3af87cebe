"""The patterns of the built-in scenes: every shape wears its own, as zebras have stripes, and so does every part."""

import numpy as np

from flexpredict.data.scenes.dice import Floats

# What 1, p, q and pq contribute (see `Objects.pattern`).
PLAIN, STRIPED, CHECKED, DOTTED = (-1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 1), (-0.5, 0.8, 0.8, 0)

# Of each shape; angle in degrees and cycles a radius follow.
COATS = {
    "ball": (*PLAIN, 0, 1.0),
    "box": (*CHECKED, 0, 0.9),
    "ring": (*STRIPED, 0, 1.1),
    "star": (*DOTTED, 0, 1.0),
    "cross": (*STRIPED, 90, 1.1),
    "crescent": (*STRIPED, 45, 1.4),
    "triangle": (*CHECKED, 45, 1.6),
    "bar": (*STRIPED, 0, 2.0),
    "heart": (*DOTTED, 0, 1.6),
    "flower": (*STRIPED, 90, 2.0),
}


def pattern_waves(coats: Floats, numbers: Floats) -> Floats:
    """... 4: angle and cycles nearly those of the coats (... 6), any phases. numbers: ... 4, in [0, 1)."""
    waves = numbers * (0.3, 0.2, 1, 1) - (0.15, 0, 0, 0)
    waves[..., 0] += np.deg2rad(coats[..., 4])
    waves[..., 1] += coats[..., 5]
    return waves
