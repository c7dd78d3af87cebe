"""Rectangular blocks of patches on a grid: placing them, taking them out of a mask, keeping some of what is left.

This is index arithmetic on the CPU in numpy, whose partition and small operations take a fraction of torch's time.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.randomness import sample_keys, uniform
from flexpredict.sizes import Grid, Size

Numbers = NDArray[np.float32]  # uniform in [0, 1)
Patches = NDArray[np.int64]
Mask = NDArray[np.bool_]  # ... N: which of the N patches of the grid
_Item = TypeVar("_Item", bound=np.generic)


def value_at(level: int, levels: int, span: tuple[float, float]) -> float:
    """The middle of part number `level` (modulo `levels`) of the span, which is cut into `levels` equal parts.

    Scales and aspects take few values so that `check_masking` can check every block size that a run can meet.
    If `levels` is a power of two, a random word modulo `levels` is uniform.
    """
    low, high = span
    return low + (high - low) * (level % levels + 0.5) / levels


def row_numbers(key: int, rows: Tensor, count: int) -> Numbers:
    """`count` uniform numbers for each of the given rows of the batch: R -> R count."""
    numbers: Numbers = uniform(sample_keys(key, rows), count).numpy()
    return numbers


def place_blocks(numbers: Numbers, size: Size, places: Size, grid: Grid) -> Patches:
    """The patches of one block for each number, ascending: ... -> ... Nt.

    places: the number of rows and columns, counted from the first, in which the top-left corner may lie.
    """
    corners = _rectangle(places, grid)
    return _choose(corners, numbers)[..., None] + _rectangle(size, grid)


def place_block_masks(numbers: Numbers, size: Size, places: Size, grid: Grid) -> Mask:
    """The same blocks as masks: ... -> ... N. Quick for large blocks, which have few places, each computed once."""
    corners = _rectangle(places, grid)
    outside = np.ones((len(corners), math.prod(grid)), dtype=np.bool_)
    take_out(outside, corners[:, None] + _rectangle(size, grid))
    return _choose(~outside, numbers)


def take_out(masks: Mask, patches: Patches) -> None:
    """Remove each row's patches from its mask, in place: R N, R ..."""
    rows, length = masks.shape
    # Flat indices: several times faster than a pair of indices.
    masks.reshape(-1)[patches.reshape(rows, -1) + np.arange(0, rows * length, length)[:, None]] = False


def keep_highest(left: Mask, scores: Numbers, count: int) -> Patches:
    """The `count` patches with the highest scores among those left in each row: R N, R N -> R count, ascending.

    scores: multiples of 2^-24.
    """
    total = left.shape[-1]
    # Score and patch make one exact number, the patch in the bits below the score: so no two are equal, and the
    # partition need not move the patches as well. Patches that are not left get 0, below all others.
    span = 1 << total.bit_length()
    ranked = (scores + np.arange(1, total + 1) / (span * 2.0**24)) * left
    ranked.partition(total - count, axis=-1)
    highest = (ranked[:, total - count :] * (span * 2.0**24)).astype(np.int64)
    kept: Patches = (highest & (span - 1)) - 1
    kept.sort(axis=-1)
    return kept


def _choose(items: NDArray[_Item], numbers: Numbers) -> NDArray[_Item]:
    # The product stays below len(items) in float32 too, as numbers are at most 1 - 2^-24.
    return items[(numbers * len(items)).astype(np.int64)]


def _rectangle(size: Size, grid: Grid) -> Patches:
    """The patches of a block in the top-left corner of the grid."""
    return (np.arange(size[0])[:, None] * grid[1] + np.arange(size[1])).reshape(-1)
