"""Rectangular blocks of patches on a grid: placing them, counting what they leave, keeping some of it.

This is index arithmetic on the CPU in numpy, whose sorting and small operations take a fraction of torch's time. What
blocks cover is kept as bits, a few words for each row of the grid, until single patches are asked for.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexpredict.randomness import words_at
from flexpredict.sizes import Grid, Size

Numbers = NDArray[np.float32]  # uniform in [0, 1)
Words = NDArray[np.uint32]
Patches = NDArray[np.int64]
Ranks = NDArray[np.unsignedinteger[Any]]
Mask = NDArray[np.bool_]  # ... N: which of the N patches of the grid
Bits = NDArray[np.uint64]  # ... H K: the same, one bit for each column of a row of the grid, in K words


def value_at(level: int, levels: int, span: tuple[float, float]) -> float:
    """The middle of part number `level` (modulo `levels`) of the span, which is cut into `levels` equal parts.

    Scales and aspects take few values so that `check_masking` can check every block size that a run can meet.
    If `levels` is a power of two, a random word modulo `levels` is uniform.
    """
    low, high = span
    return low + (high - low) * (level % levels + 0.5) / levels


def row_words(key: int, rows: Patches, count: int) -> Words:
    """`count` random words for each of the given rows of the batch: R -> R count."""
    pairs = (count + 1) // 2
    places = rows[:, None] * pairs + np.arange(pairs)
    return words_at(key, places).view(np.uint32)[:, :count]


def row_numbers(key: int, rows: Patches, count: int) -> Numbers:
    """`row_words` as uniform numbers."""
    return as_numbers(row_words(key, rows, count))


def as_numbers(words: Words) -> Numbers:
    """Words ... -> uniform numbers ..., multiples of 2^-24."""
    return (words >> np.uint32(8)) * np.float32(2.0**-24)


def as_ranks(words: Words, maps: Words) -> Ranks:
    """A random order of the N patches for each row: N, R 2 -> R N, odd numbers, none of them twice in a row.

    All rows share the order of the N words; each reads it through an affine map of its own, modulo a power of two. So
    every order is equally likely in a row, two rows are nearly independent, and a patch costs one multiplication.
    """
    patches = len(words)
    kind = np.dtype(np.uint16 if patches <= 2**14 else np.uint32)
    gap = 1 << (8 * kind.itemsize - 1 - patches.bit_length())
    # Uneven gaps: multiples of one number would make the orders of two rows alike too often.
    shared = (2 * (words.argsort() * gap + (words & (gap - 1))) + 1).astype(kind)
    factors, shifts = maps.T.astype(kind)
    ranks: Ranks = np.multiply.outer(factors | 1, shared)
    ranks += (shifts << 1)[:, None]
    return ranks


def choose_corners(numbers: Numbers, places: Size, grid: Grid) -> Patches:
    """The top-left patch of one block for each number.

    places: the number of rows and columns, counted from the first, in which it may lie.
    """
    corners = _rectangle(places, grid)
    # The product stays below len(corners) in float32 too, as numbers are at most 1 - 2^-24.
    return corners[(numbers * len(corners)).astype(np.int64)]


def block_patches(corners: Patches, size: Size, grid: Grid) -> Patches:
    """The patches of a block of this size at each corner, ascending: ... -> ... Nt."""
    return corners[..., None] + _rectangle(size, grid)


def block_bits(corners: Patches, size: Size, grid: Grid) -> Bits:
    """`block_patches` as bits: ... -> ... H K."""
    top, left = np.divmod(corners, grid[1])
    return _spans(grid[0], size[0])[top][..., None] * _span_words(grid[1], size[1])[left][..., None, :]


def count_patches(bits: Bits) -> Patches:
    """The number of patches in each row: R H K -> R."""
    counts: Patches = np.bitwise_count(bits).sum(axis=(-2, -1), dtype=np.int64)
    return counts


def as_mask(bits: Bits, grid: Grid) -> Mask:
    """Bits as a mask: R H K -> R N."""
    columns = np.unpackbits(bits.view(np.uint8), axis=-1, count=grid[1], bitorder="little")
    return columns.view(np.bool_).reshape(len(bits), -1)


def in_span(count: int, start: Patches, length: Patches | int) -> Mask:
    """Which of the numbers 0 to count - 1 lie in each span: ... -> ... count"""
    numbers = np.arange(count)
    return (numbers >= start[..., None]) & (numbers < (start + length)[..., None])


def keep_highest(left: Mask, ranks: Ranks, count: int) -> Patches:
    """The `count` patches of highest rank among those left in each row: R N, R N or N -> R count, ascending."""
    rows, patches = left.shape
    ranked = ranks * left
    # Sorting whole rows is quicker than finding the one rank that matters: numpy has vector instructions for it.
    lowest = np.sort(ranked, axis=-1)[:, patches - count, None]
    kept: Patches = np.flatnonzero(ranked >= lowest).reshape(rows, count)
    kept -= np.arange(0, rows * patches, patches)[:, None]
    return kept


def _rectangle(size: Size, grid: Grid) -> Patches:
    """The patches of a block in the top-left corner of the grid."""
    return (np.arange(size[0])[:, None] * grid[1] + np.arange(size[1])).reshape(-1)


@cache
def _spans(count: int, length: int) -> Mask:
    """Row i: which of the numbers 0 to count - 1 lie in the span of this length that begins at i."""
    return in_span(count, np.arange(count - length + 1), length)


@cache
def _span_words(count: int, length: int) -> Bits:
    """`_spans` as bits of words."""
    whole_words = np.zeros((count - length + 1, -(-count // 64) * 64), dtype=np.bool_)
    whole_words[:, :count] = _spans(count, length)
    return np.packbits(whole_words, axis=-1, bitorder="little").view(np.uint64)
