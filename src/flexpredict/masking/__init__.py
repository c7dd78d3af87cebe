"""Which patches of an image are context and which are targets, drawn for a whole batch at once.

The masks depend on nothing but the settings, the grid, the key of the step and the size of the batch. Every rank can
therefore draw those of the global batch and take its rows.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from flexpredict.errors import UserError, did_you_mean
from flexpredict.masking.multiblock import check_multiblock, sample_multiblock
from flexpredict.masking.partitions import check_mask_ratio, sample_block_masks, sample_random
from flexpredict.masking.published import check_published, sample_published
from flexpredict.masking.rectangles import Patches, row_numbers
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Kind, Masking
from flexpredict.settings.ranges import check_ranges
from flexpredict.sizes import Grid

__all__ = ["Masks", "check_masking", "patches_of_cells", "sample_masks"]

_KINDS = {
    "multiblock": (sample_multiblock, check_multiblock),
    "random": (sample_random, check_mask_ratio),
    "blocks": (sample_block_masks, check_mask_ratio),
    "published": (sample_published, check_published),
}


@dataclass(frozen=True, eq=False)
class Masks:
    """Patch indices (row-major), ascending, for C contexts per image and M target blocks per context.

    context: B C Nc int64, targets: B C M Nt int64.
    """

    context: Tensor
    targets: Tensor

    def rows(self, start: int, stop: int) -> "Masks":
        """The masks of images `start` to `stop`: one rank's share of the global batch."""
        return Masks(self.context[start:stop], self.targets[start:stop])

    def to(self, device: torch.device | str) -> "Masks":
        """The same masks on another device."""
        return Masks(self.context.to(device), self.targets.to(device))


def sample_masks(masking: Masking, grid: Grid, key: int, batch: int) -> Masks:
    """The masks of `batch` images of `grid` = (rows, columns) patches, on the CPU: a pure function of its arguments.

    Image i has the same targets in a batch of any size. All contexts of a batch are cut to the size of the smallest,
    so the context of an image in a larger batch is a subset of its context in a smaller one.
    """
    masking = masking.settled()
    assert masking.kind
    rows = np.arange(batch * masking.contexts_per_image)
    sample, _ = _KINDS[masking.kind]
    context, targets = sample(masking, _cells(masking, grid), key, rows)
    if masking.keep_targets < 1:
        targets = _some_of_each(targets, masking.keep_targets, stream_key(key, "kept targets"), rows)
    sets = (batch, masking.contexts_per_image)
    masks = Masks(
        torch.from_numpy(context).view(*sets, *context.shape[1:]),
        torch.from_numpy(targets).view(*sets, *targets.shape[1:]),
    )
    if masking.cell == 1:
        return masks
    return Masks(*(patches_of_cells(part, masking.cell, grid) for part in (masks.context, masks.targets)))


def check_masking(masking: Masking, grid: Grid) -> None:
    """Raise a `UserError` if a setting is out of range, or if the settings cannot work on this grid."""
    check_ranges(masking, "masking.")
    masking = masking.settled()
    assert masking.kind
    if masking.kind not in _KINDS:
        raise UserError(
            f"masking.kind={masking.kind} is not known; choose one of {', '.join(get_args(Kind))}."
            + did_you_mean(masking.kind, _KINDS)
        )
    if min(grid) < 1:
        raise UserError(f"A grid of {grid[0]}x{grid[1]} patches has no patches: the images are smaller than a patch.")
    if grid[0] % masking.cell or grid[1] % masking.cell:
        raise UserError(
            f"masking.cell={masking.cell} does not divide a grid of {grid[0]}x{grid[1]} patches. Use another, or an "
            "image_size that makes the grid a multiple of it."
        )
    _, check = _KINDS[masking.kind]
    check(masking, _cells(masking, grid))


def patches_of_cells(cells: Tensor, side: int, grid: Grid) -> Tensor:
    """Indices on the grid of all patches of these cells, ascending: ... N -> ... (N·side²)."""
    rows, columns = cells // (grid[1] // side), cells % (grid[1] // side)
    corners = rows * side * grid[1] + columns * side
    inside = torch.arange(side, device=cells.device)
    offsets = (inside[:, None] * grid[1] + inside).flatten()
    return (corners.unsqueeze(-1) + offsets).flatten(-2).sort(dim=-1).values


def _some_of_each(targets: Patches, share: float, key: int, rows: Patches) -> Patches:
    """A random part of each target, ascending, at least one patch: R M Nt -> R M K."""
    _, blocks, length = targets.shape
    order = row_numbers(key, rows, blocks * length).reshape(targets.shape).argsort(axis=-1)
    kept = np.sort(order[..., : max(1, round(share * length))], axis=-1)
    return np.take_along_axis(targets, kept, axis=-1)


def _cells(masking: Masking, grid: Grid) -> Grid:
    """The grid that masks are drawn on."""
    return grid[0] // masking.cell, grid[1] // masking.cell
