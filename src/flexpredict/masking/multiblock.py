"""Multi-block masks as in I-JEPA, without the published faults: several targets, and a large context without them.

Scale and aspect are independent, blocks reach every row and column of the grid, no target patch is ever context, and
contexts are cut to one size by dropping random patches.
"""

import math

import numpy as np
import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.masking.rectangles import (
    Mask,
    Numbers,
    Patches,
    as_numbers,
    as_ranks,
    keep_highest,
    place_block_masks,
    place_blocks,
    row_numbers,
    row_words,
    take_out,
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


def sample_multiblock(masking: Masking, grid: Grid, key: int, rows: Tensor) -> tuple[Patches, Patches]:
    """Context R Nc and targets R M Nt for R rows of the batch, of which `rows` gives the numbers."""
    target = _target_size(masking, grid, stream_key(key, "target scale"), stream_key(key, "target aspect"))
    context = _context_size(masking, grid, stream_key(key, "context scale"), stream_key(key, "context aspect"))
    blocks = 1 + masking.targets
    words = row_words(key, rows, blocks + math.prod(grid))

    left, targets = _lay_out(as_numbers(words[:, :blocks]), target, context, grid)
    counts = np.count_nonzero(left, axis=-1)
    short = np.flatnonzero(counts < _needed(masking, grid))
    if len(short):
        more = row_numbers(stream_key(key, "further"), rows[short], _RETRIES * blocks)
        more = more.reshape(len(short), _RETRIES, blocks)
        left[short], targets[short] = _first_sufficient(_needed(masking, grid), more, target, context, grid)
        counts[short] = np.count_nonzero(left[short], axis=-1)
    return keep_highest(left, as_ranks(words[:, blocks:]), counts.min()), targets


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
            f"{blocks} cannot be sure to leave {wanted}. Lower masking.target_scale or masking.min_context, raise "
            "masking.context_scale, or use more patches (larger images or smaller patches)."
        )
    left, _ = _lay_out(row_numbers(0, torch.arange(1024), 1 + masking.targets), target, context, grid)
    failing = np.mean(left.sum(-1) < needed)
    if failing > 0.5:
        raise UserError(
            f"{blocks} leave fewer than {wanted} in {failing:.0%} of all draws. Lower masking.targets, "
            "masking.target_scale or masking.min_context."
        )


def _lay_out(numbers: Numbers, target: Size, context: Size, grid: Grid) -> tuple[Mask, Patches]:
    """Place a context block and M targets by R 1+M numbers: the context that is left R N, and the targets R M Nt."""
    targets = place_blocks(numbers[:, 1:], target, _all_places(target, grid), grid)
    left = place_block_masks(numbers[:, 0], context, _all_places(context, grid), grid)
    take_out(left, targets)
    return left, targets


def _first_sufficient(needed: int, numbers: Numbers, target: Size, context: Size, grid: Grid) -> tuple[Mask, Patches]:
    """For each row the first of L layouts that leaves enough context: numbers R L 1+M -> R N, R M Nt."""
    rows, layouts, blocks = numbers.shape
    # The last layout has all targets in one place, which leaves enough: `check_multiblock` has made sure of that.
    numbers[:, -1, 2:] = numbers[:, -1, 1:2]
    left, targets = _lay_out(numbers.reshape(-1, blocks), target, context, grid)
    enough = (left.sum(-1) >= needed).reshape(rows, layouts)
    first = np.arange(rows) * layouts + enough.argmax(-1)
    return left[first], targets[first]


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
