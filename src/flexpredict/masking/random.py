"""A random part of the patches as context, and all the others as one target (MAE)."""

import math

import numpy as np
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.masking.rectangles import Patches, Size, row_numbers
from flexpredict.settings.masking import Masking


def sample_random(masking: Masking, grid: Size, key: int, rows: Tensor) -> tuple[Patches, Patches]:
    """Context R Nc and targets R 1 Nt for R rows of the batch, of which `rows` gives the numbers."""
    order = row_numbers(key, rows, math.prod(grid)).argsort(axis=-1)
    kept = math.prod(grid) - masking.hidden(math.prod(grid))
    return np.sort(order[:, :kept], axis=-1), np.sort(order[:, kept:], axis=-1)[:, None]


def check_random(masking: Masking, grid: Size) -> None:
    """Refuses a mask ratio that leaves no context or no target on this grid."""
    patches, hidden = math.prod(grid), masking.hidden(math.prod(grid))
    if not 0 < hidden < patches:
        raise UserError(
            f"masking.mask_ratio={masking.mask_ratio:g} keeps {patches - hidden} of {patches} patches "
            f"({grid[0]}x{grid[1]}) as context. Choose one that leaves at least one patch of context and one target."
        )
