"""Rectangular blocks of patches on a grid: placing them, taking them out of a mask, keeping some of what is left.

This is index arithmetic on the CPU in numpy, whose sorting and small operations take a fraction of torch's time.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.randomness import random_words, sample_keys
from flexpredict.sizes import Grid, Size

Numbers = NDArray[np.float32]  # uniform in [0, 1)
Words = NDArray[np.uint32]
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


def row_words(key: int, rows: Tensor, count: int) -> Words:
    """`count` random words for each of the given rows of the batch: R -> R count."""
    return random_words(sample_keys(key, rows), (count + 1) // 2).numpy().view(np.uint32)[:, :count]


def row_numbers(key: int, rows: Tensor, count: int) -> Numbers:
    """The same as numbers."""
    return as_numbers(row_words(key, rows, count))


def as_numbers(words: Words) -> Numbers:
    """... -> ..., multiples of 2^-24."""
    return (words >> np.uint32(8)) * np.float32(2.0**-24)


def as_ranks(words: Words) -> Words:
    """An order of all patches for each row: R N -> R N, no two of a row alike, none 0."""
    patches = words.shape[-1]
    # The lowest bits are the number of the patch, so that no two are equal.
    ranks = words & np.uint32(2**32 - (1 << patches.bit_length()))
    ranks += np.arange(1, patches + 1, dtype=np.uint32)
    return ranks


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


def keep_highest(left: Mask, ranks: Words, count: int) -> Patches:
    """The `count` patches of highest rank among those left in each row: R N, R N or N -> R count, ascending."""
    rows, patches = left.shape
    ranked = ranks * left
    # Sorting whole rows is quicker than finding the one rank that matters: numpy has vector instructions for it.
    lowest = np.sort(ranked, axis=-1)[:, patches - count, None]
    kept: Patches = np.flatnonzero(ranked >= lowest).reshape(rows, count)
    kept -= np.arange(0, rows * patches, patches)[:, None]
    return kept


def _choose(items: NDArray[_Item], numbers: Numbers) -> NDArray[_Item]:
    # The product stays below len(items) in float32 too, as numbers are at most 1 - 2^-24.
    return items[(numbers * len(items)).astype(np.int64)]


def _rectangle(size: Size, grid: Grid) -> Patches:
    """The patches of a block in the top-left corner of the grid."""
    return (np.arange(size[0])[:, None] * grid[1] + np.arange(size[1])).reshape(-1)
