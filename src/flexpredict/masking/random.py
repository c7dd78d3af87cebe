"""A random part of the patches as context, and all the others as one target (MAE)."""

import math

import numpy as np
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.masking.blocks import Patches, Size, row_numbers
from flexpredict.masking.masks import Masking


def sample_random(masking: Masking, grid: Size, key: int, rows: Tensor) -> tuple[Patches, Patches]:
    """Context R Nc and targets R 1 Nt for R rows of the batch, of which `rows` gives the numbers."""
    order = row_numbers(key, rows, math.prod(grid)).argsort(axis=-1)
    kept = _kept(masking, grid)
    return np.sort(order[:, :kept], axis=-1), np.sort(order[:, kept:], axis=-1)[:, None]


def check_random(masking: Masking, grid: Size) -> None:
    """Refuses a mask ratio that leaves no context or no target on this grid."""
    if not 0 < _kept(masking, grid) < math.prod(grid):
        raise UserError(
            f"masking.mask_ratio={masking.mask_ratio:g} keeps {_kept(masking, grid)} of {math.prod(grid)} patches "
            f"({grid[0]}x{grid[1]}) as context. Choose one that leaves at least one patch of context and one target."
        )


def _kept(masking: Masking, grid: Size) -> int:
    return round(math.prod(grid) * (1 - masking.mask_ratio))
