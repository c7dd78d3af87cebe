"""Blocks heaped on one another until they hide enough, and as context all that is left to see (data2vec, BEiT).

Every image hides the same number of patches, so a batch needs no cutting, and every patch is context or target.
"""

import math

import numpy as np
from torch import Tensor

from flexpredict.masking.random import check_random
from flexpredict.masking.rectangles import Mask, Numbers, Patches, Size, row_numbers
from flexpredict.settings.masking import Masking

# Blocks until the heap is high enough, at the most. Where these do not reach, the grid is filled from one end.
_MOST = 64


def sample_heap(masking: Masking, grid: Size, key: int, rows: Tensor) -> tuple[Patches, Patches]:
    """Context R Nc and targets R 1 Nt for R rows of the batch, of which `rows` gives the numbers."""
    hidden = masking.hidden(math.prod(grid))
    blocks = _enough(masking, hidden / math.prod(grid))
    numbers = row_numbers(key, rows, 1 + 4 * blocks)
    covers = _covers(numbers[:, 1:].reshape(len(rows), blocks, 4), masking, grid)
    # Which block hides a patch first; the last block that is needed is filled from its top or, as often, its bottom.
    first = np.where(covers.any(axis=1), covers.argmax(axis=1), blocks)
    place = np.arange(math.prod(grid))
    order = np.where(numbers[:, :1] < 0.5, place, place[::-1]) + first * math.prod(grid)
    chosen = order.argsort(axis=-1)
    return np.sort(chosen[:, hidden:], axis=-1), np.sort(chosen[:, :hidden], axis=-1)[:, None]


def check_heap(masking: Masking, grid: Size) -> None:
    """Refuses a mask ratio that leaves no context or no target on this grid."""
    check_random(masking, grid)


def _enough(masking: Masking, share: float) -> int:
    """Blocks that will nearly always do: four times those that would hide this share if they fell at random."""
    smallest = min(masking.target_scale[0], 0.99)
    return min(_MOST, math.ceil(4 * math.log(1 - min(share, 0.99)) / math.log(1 - smallest)))


def _covers(numbers: Numbers, masking: Masking, grid: Size) -> Mask:
    """Four numbers a block (scale, aspect, row, column) -> the patches that it hides: R K 4 -> R K N."""
    scale, aspect, row, column = np.moveaxis(numbers.astype(np.float64), -1, 0)
    (low, high), (wide, tall) = masking.target_scale, masking.target_aspect
    area = (low + (high - low) * scale) * math.prod(grid)
    # A block that would stick out of the grid is made as long as the grid, and wider, so that it keeps its area.
    height = np.sqrt(area * wide * (tall / wide) ** aspect).clip(area / grid[1], grid[0])
    heights = np.rint(height).clip(1, grid[0]).astype(np.int64)
    widths = np.rint(area / heights).clip(1, grid[1]).astype(np.int64)
    top, left = (row * (grid[0] - heights + 1)).astype(np.int64), (column * (grid[1] - widths + 1)).astype(np.int64)
    rows = _between(np.arange(grid[0]), top, heights)
    columns = _between(np.arange(grid[1]), left, widths)
    return (rows[..., :, None] & columns[..., None, :]).reshape(*rows.shape[:-1], -1)


def _between(places: Patches, start: Patches, length: Patches) -> Mask:
    return (places >= start[..., None]) & (places < (start + length)[..., None])
