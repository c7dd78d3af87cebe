"""Random masks as in MAE: some patches at random are context, all others are one target."""

import math

import numpy as np
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.masking.rectangles import Patches, row_numbers
from flexpredict.settings.masking import Masking
from flexpredict.sizes import Grid


def sample_random(masking: Masking, grid: Grid, key: int, rows: Tensor) -> tuple[Patches, Patches]:
    """Context R Nc and targets R 1 Nt for R rows of the batch, of which `rows` gives the numbers."""
    order = row_numbers(key, rows, math.prod(grid)).argsort(axis=-1)
    kept = math.prod(grid) - masking.masked_patches(math.prod(grid))
    return np.sort(order[:, :kept], axis=-1), np.sort(order[:, kept:], axis=-1)[:, None]


def check_mask_ratio(masking: Masking, grid: Grid) -> None:
    """Refuses a mask ratio that leaves no context or no target on this grid."""
    patches, masked = math.prod(grid), masking.masked_patches(math.prod(grid))
    if not 0 < masked < patches:
        raise UserError(
            f"masking.mask_ratio={masking.mask_ratio:g} keeps {patches - masked} of {patches} patches "
            f"({grid[0]}x{grid[1]}) as context. Choose one that leaves at least one patch of context and one target."
        )
