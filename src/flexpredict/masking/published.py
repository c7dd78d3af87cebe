"""I-JEPA's sampler as it was published, with its faults, to measure what they cost.

One random number decides both scale and aspect. No block reaches the last row or column. Where a context stays too
small, targets are left in it one by one, and so leak into it. Contexts are cut to the smallest of the batch from the
bottom up. Unlike the original it cannot hang: `check_published` refuses the grids on which the original does.
"""

import math

import numpy as np

from flexpredict.errors import UserError
from flexpredict.masking.rectangles import (
    Patches,
    as_mask,
    block_bits,
    block_patches,
    choose_corners,
    count_patches,
    keep_highest,
    row_numbers,
    value_at,
)
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Masking
from flexpredict.sizes import Grid, Size

# A block must have more patches than this on any grid.
_MIN_KEEP = 10
# Failed tries after which one more target, the last first, is left in the context.
_TRIES = 20
_SQUARE = (1.0, 1.0)
# Values of the random number that decides scale and aspect.
_LEVELS = 1024


def sample_published(masking: Masking, grid: Grid, key: int, rows: Patches) -> tuple[Patches, Patches]:
    """Context R Nc and targets R M Nt for R rows of the batch; `rows` gives their numbers."""
    target = _size(grid, stream_key(key, "target size"), masking.target_scale, masking.target_aspect)
    context = _size(grid, stream_key(key, "context size"), masking.context_scale, _SQUARE)

    # All contexts of an image have the same targets.
    numbers = row_numbers(stream_key(key, "targets"), rows // masking.contexts_per_image, masking.targets)
    targets = choose_corners(numbers, _places(target, grid), grid)
    taken = block_bits(targets, target, grid)

    tries = _TRIES * masking.targets + 1
    numbers = row_numbers(stream_key(key, "context"), rows, tries)
    left = np.zeros_like(taken[:, 0])
    short = np.arange(len(rows))
    for attempt in range(tries):
        around = choose_corners(numbers[short, attempt], _places(context, grid), grid)
        still_taken = np.bitwise_or.reduce(taken[short, : masking.targets - attempt // _TRIES], axis=1)
        left[short] = block_bits(around, context, grid) & ~still_taken
        short = short[count_patches(left[short]) <= _MIN_KEEP]
        if not len(short):
            break

    from_the_top = np.arange(math.prod(grid), 0, -1, dtype=np.uint32)
    context_patches = keep_highest(as_mask(left, grid), from_the_top, count_patches(left).min())
    return context_patches, block_patches(targets, target, grid)


def check_published(masking: Masking, grid: Grid) -> None:
    """Refuses grids on which the original would search forever for a block that is large enough."""
    for name, scale, aspect in (
        ("target", masking.target_scale, masking.target_aspect),
        ("context", masking.context_scale, _SQUARE),
    ):
        height, width = min((_size(grid, level, scale, aspect) for level in range(_LEVELS)), key=math.prod)
        if height * width <= _MIN_KEEP:
            raise UserError(
                f"masking.kind=published never ends on a grid of {grid[0]}x{grid[1]} patches: it waits for a {name} "
                f"block of more than {_MIN_KEEP} patches, and its blocks can be {height}x{width}. Use "
                "masking.kind=multiblock, or more patches (larger images or smaller patches)."
            )


def _places(size: Size, grid: Grid) -> Size:
    """As published: one row and one column too few, so that a block never reaches the last ones."""
    return grid[0] - size[0], grid[1] - size[1]


def _size(grid: Grid, level: int, scale: tuple[float, float], aspect: tuple[float, float]) -> Size:
    """One level for both scale and aspect; always smaller than the grid."""
    patches = int(math.prod(grid) * value_at(level, _LEVELS, scale))
    height = round(math.sqrt(patches * value_at(level, _LEVELS, aspect)))
    width = round(math.sqrt(patches / value_at(level, _LEVELS, aspect)))
    return min(height, grid[0] - 1), min(width, grid[1] - 1)
