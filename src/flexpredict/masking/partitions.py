"""Masks in which every patch is either context or target: random ones (MAE), blocks (BEiT, data2vec).

Every image has the same number of masked patches, so a batch needs no cutting.
"""

import math

import numpy as np

from flexpredict.errors import UserError
from flexpredict.masking.rectangles import Mask, Numbers, Patches, in_span, row_numbers
from flexpredict.settings.masking import Masking
from flexpredict.sizes import Grid

# Most blocks in one mask. If they mask too little, the rest is masked from the top or the bottom of the grid.
_MAX_BLOCKS = 64


def sample_random(masking: Masking, grid: Grid, key: int, rows: Patches) -> tuple[Patches, Patches]:
    """Some patches at random are context, all others one target: R Nc and R 1 Nt.

    rows: numbers of the R rows of the batch.
    """
    order = row_numbers(key, rows, math.prod(grid)).argsort(axis=-1)
    kept = math.prod(grid) - masking.masked_patches(math.prod(grid))
    return np.sort(order[:, :kept], axis=-1), np.sort(order[:, kept:], axis=-1)[:, None]


def sample_block_masks(masking: Masking, grid: Grid, key: int, rows: Patches) -> tuple[Patches, Patches]:
    """Overlapping blocks are masked one by one, the rest is context: R Nc and R 1 Nt."""
    patches = math.prod(grid)
    masked = masking.masked_patches(patches)
    blocks = _number_of_blocks(masking, masked / patches)
    numbers = row_numbers(key, rows, 1 + 4 * blocks)
    covers = _covered_patches(numbers[:, 1:].reshape(len(rows), blocks, 4), masking, grid)
    # Patches in the order of the first block that covers each. The last block needed may be used in part: it is
    # filled from its top or, as often, from its bottom.
    first = np.where(covers.any(axis=1), covers.argmax(axis=1), blocks)
    place = np.arange(patches)
    order = (np.where(numbers[:, :1] < 0.5, place, place[::-1]) + first * patches).argsort(axis=-1)
    return np.sort(order[:, masked:], axis=-1), np.sort(order[:, :masked], axis=-1)[:, None]


def check_mask_ratio(masking: Masking, grid: Grid) -> None:
    """Refuses a mask ratio that leaves no context or no target on this grid."""
    patches, masked = math.prod(grid), masking.masked_patches(math.prod(grid))
    if not 0 < masked < patches:
        raise UserError(
            f"masking.mask_ratio={masking.mask_ratio:g} keeps {patches - masked} of {patches} patches "
            f"({grid[0]}x{grid[1]}) as context. Choose one that leaves at least one patch of context and one target."
        )


def _number_of_blocks(masking: Masking, ratio: float) -> int:
    """Four times the blocks that would mask this share if they fell at random: nearly always enough."""
    smallest = min(masking.target_scale[0], 0.99)
    return min(_MAX_BLOCKS, math.ceil(4 * math.log(1 - min(ratio, 0.99)) / math.log(1 - smallest)))


def _covered_patches(numbers: Numbers, masking: Masking, grid: Grid) -> Mask:
    """The patches covered by each block, from four numbers (scale, aspect, row, column): R K 4 -> R K N."""
    scale, aspect, row, column = np.moveaxis(numbers.astype(np.float64), -1, 0)
    (low, high), (wide, tall) = masking.target_scale, masking.target_aspect
    area = (low + (high - low) * scale) * math.prod(grid)
    # A block that would be taller than the grid is made as tall as the grid, and wider, so that it keeps its area.
    height = np.sqrt(area * wide * (tall / wide) ** aspect).clip(area / grid[1], grid[0])
    heights = np.rint(height).clip(1, grid[0]).astype(np.int64)
    widths = np.rint(area / heights).clip(1, grid[1]).astype(np.int64)
    top, left = (row * (grid[0] - heights + 1)).astype(np.int64), (column * (grid[1] - widths + 1)).astype(np.int64)
    rows, columns = in_span(grid[0], top, heights), in_span(grid[1], left, widths)
    return (rows[..., :, None] & columns[..., None, :]).reshape(*rows.shape[:-1], -1)
