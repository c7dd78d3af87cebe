"""The random numbers of the built-in scenes: each depends on the scene and on what it is for, only."""

import numpy as np
import torch
from numpy.typing import NDArray

from flexpredict.randomness import sample_keys, stream_key, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Range = tuple[float, float]


class Dice:
    """Uniform numbers for B scenes, each a pure function of the scene's key and of what it is for.

    float64, because sines and the like may differ in their last bit with the length of an array: rounded to float32
    afterwards, a scene is the same in whatever batch it is drawn.
    """

    def __init__(self, keys: torch.Tensor) -> None:
        self._keys = keys

    def __call__(self, what: str, *shape: int) -> Floats:
        """B *shape, in [0, 1)."""
        keys = sample_keys(stream_key(0, what), self._keys)
        numbers = uniform(keys, int(np.prod(shape))).double().numpy()
        return numbers.reshape(len(keys), *shape)

    def between(self, what: str, ends: Range, *shape: int) -> Floats:
        return ends[0] + (ends[1] - ends[0]) * self(what, *shape)

    def choice(self, what: str, options: int, *shape: int) -> Ints:
        return (self(what, *shape) * options).astype(np.int64)
