"""The masks of a batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from flexpredict.sizes import Grid


def patches_of_cells(cells: Tensor, side: int, grid: Grid) -> Tensor:
    """Indices on the grid of all patches of these cells, ascending: ... N -> ... (N·side²)."""
    rows, columns = cells // (grid[1] // side), cells % (grid[1] // side)
    corners = rows * side * grid[1] + columns * side
    inside = torch.arange(side, device=cells.device)
    offsets = (inside[:, None] * grid[1] + inside).flatten()
    return (corners.unsqueeze(-1) + offsets).flatten(-2).sort(dim=-1).values


@dataclass(frozen=True, eq=False)
class Masks:
    """Patch indices (row-major), ascending, for C contexts an image and M target blocks a context.

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
