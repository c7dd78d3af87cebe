"""Multi-block masks as in I-JEPA, without the published faults: several targets, and a large context without them.

Scale and aspect are independent, blocks reach every row and column of the grid, no target patch is ever context, and
contexts are cut to one size by dropping random patches.
"""

import math

import numpy as np

from flexpredict.errors import UserError
from flexpredict.masking.rectangles import (
    Bits,
    Numbers,
    Patches,
    as_mask,
    as_numbers,
    as_ranks,
    block_bits,
    block_patches,
    choose_corners,
    count_patches,
    keep_highest,
    row_numbers,
    row_words,
    value_at,
)
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Masking
from flexpredict.sizes import Grid, Size

# Values of a scale or an aspect. Both together give 1024 shapes, more than whole patches can tell apart.
_LEVELS = 32
# More layouts to try for an image whose first leaves too little context. `check_multiblock` refuses settings where
# more than half of all layouts do, so at worst one image in 65,000 needs the last of them.
_RETRIES = 16


def sample_multiblock(masking: Masking, grid: Grid, key: int, rows: Patches) -> tuple[Patches, Patches]:
    """Context R Nc and targets R M Nt for R rows of the batch; `rows` gives their numbers."""
    target = _target_size(masking, grid, stream_key(key, "target scale"), stream_key(key, "target aspect"))
    context = _context_size(masking, grid, stream_key(key, "context scale"), stream_key(key, "context aspect"))
    blocks = 1 + masking.targets
    needed = _needed(masking, grid)

    words = row_words(key, rows, blocks + 2)
    left, corners = _lay_out(as_numbers(words[:, :blocks]), target, context, grid)
    counts = count_patches(left)
    short = np.flatnonzero(counts < needed)
    if len(short):
        more = row_numbers(stream_key(key, "further"), rows[short], _RETRIES * blocks)
        more = more.reshape(len(short), _RETRIES, blocks)
        left[short], corners[short] = _first_sufficient(needed, more, target, context, grid)
        counts = count_patches(left)
    (order,) = row_words(stream_key(key, "order"), np.arange(1), math.prod(grid))
    ranks = as_ranks(order, words[:, blocks:])
    return keep_highest(as_mask(left, grid), ranks, counts.min()), block_patches(corners, target, grid)


def check_multiblock(masking: Masking, grid: Grid) -> None:
    """Refuses settings that leave too little context on this grid."""
    levels = range(_LEVELS)
    targets = (_target_size(masking, grid, scale, aspect) for scale in levels for aspect in levels)
    contexts = (_context_size(masking, grid, scale, aspect) for scale in levels for aspect in (0, 1))
    target, context = max(targets, key=math.prod), min(contexts, key=math.prod)
    needed = _needed(masking, grid)
    blocks = (
        f"On a grid of {grid[0]}x{grid[1]} patches, {masking.targets} target block(s) of up to "
        f"{target[0]}x{target[1]} in a context block of {context[0]}x{context[1]}"
    )
    wanted = f"{needed} patches of context (masking.min_context={masking.min_context:g})"
    if math.prod(context) - math.prod(target) < needed:
        raise UserError(
            f"{blocks} may leave fewer than {wanted}. Lower masking.target_scale or masking.min_context, raise "
            "masking.context_scale, or use more patches (larger images or smaller patches)."
        )
    left, _ = _lay_out(row_numbers(0, np.arange(1024), 1 + masking.targets), target, context, grid)
    failing = np.mean(count_patches(left) < needed)
    if failing > 0.5:
        raise UserError(
            f"{blocks} leave fewer than {wanted} in {failing:.0%} of all draws. Lower masking.targets, "
            "masking.target_scale or masking.min_context."
        )


def _lay_out(numbers: Numbers, target: Size, context: Size, grid: Grid) -> tuple[Bits, Patches]:
    """Place a context block and M targets by R 1+M numbers: remaining context R H K, corners of targets R M."""
    corners = choose_corners(numbers[:, 1:], _all_places(target, grid), grid)
    around = choose_corners(numbers[:, 0], _all_places(context, grid), grid)
    taken = np.bitwise_or.reduce(block_bits(corners.T, target, grid), axis=0)
    return block_bits(around, context, grid) & ~taken, corners


def _first_sufficient(needed: int, numbers: Numbers, target: Size, context: Size, grid: Grid) -> tuple[Bits, Patches]:
    """For each row the first of L layouts that leaves enough context: numbers R L 1+M -> R H K, R M."""
    rows, layouts, blocks = numbers.shape
    # The last layout has all targets in one place, which leaves enough: `check_multiblock` has made sure of that.
    numbers[:, -1, 2:] = numbers[:, -1, 1:2]
    left, corners = _lay_out(numbers.reshape(-1, blocks), target, context, grid)
    enough = (count_patches(left) >= needed).reshape(rows, layouts)
    first = np.arange(rows) * layouts + enough.argmax(-1)
    return left[first], corners[first]


def _all_places(size: Size, grid: Grid) -> Size:
    """Every row and column at which a block of this size can begin, the last ones included."""
    return grid[0] - size[0] + 1, grid[1] - size[1] + 1


def _target_size(masking: Masking, grid: Grid, scale_level: int, aspect_level: int) -> Size:
    aspect = value_at(aspect_level, _LEVELS, masking.target_aspect)
    return _nearest_size(value_at(scale_level, _LEVELS, masking.target_scale) * math.prod(grid), aspect, grid)


def _context_size(masking: Masking, grid: Grid, scale_level: int, aspect_level: int) -> Size:
    """The shape of the grid, or very slightly taller or wider, so that 8x7 is as frequent as 7x8 on a square grid."""
    aspect = grid[0] / grid[1] * (1.01 if aspect_level % 2 else 0.99)
    return _nearest_size(value_at(scale_level, _LEVELS, masking.context_scale) * math.prod(grid), aspect, grid)


def _nearest_size(patches: float, aspect: float, grid: Grid) -> Size:
    """Whole height and width of about this many patches. Rounding each by itself would be off by a third on 8x8.

    A block that would be taller than the grid is made as tall as the grid, and wider, so that it keeps its area.
    """
    height = min(max(math.sqrt(patches * aspect), patches / grid[1]), grid[0])
    width = patches / height
    heights = {max(1, math.floor(height)), math.ceil(height)}
    widths = {max(1, math.floor(width)), min(math.ceil(width), grid[1])}
    return min(
        ((h, w) for h in heights for w in widths),
        key=lambda size: (abs(size[0] * size[1] - patches), abs(size[0] * width - size[1] * height)),
    )


def _needed(masking: Masking, grid: Grid) -> int:
    """The smallest acceptable context in patches, at least one."""
    return max(1, math.ceil(masking.min_context * math.prod(grid) - 1e-6))
