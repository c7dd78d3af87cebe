"""Masks as text, to look at before a run starts."""

from flexpredict.masking import Masks
from flexpredict.sizes import Grid

_CONTEXT, _NEITHER = "█", "·"
_BETWEEN = "   "


def draw_masks(masks: Masks, grid: Grid, images: int = 3) -> str:
    """The first images side by side: context as blocks, targets by their numbers (the last where they overlap)."""
    pictures = [_draw(masks, grid, image) for image in range(min(images, len(masks.context)))]
    return "\n".join(_BETWEEN.join(rows) for rows in zip(*pictures, strict=True))


def _draw(masks: Masks, grid: Grid, image: int) -> list[str]:
    """The masks of this image's first context, a line for each row of patches."""
    rows, columns = grid
    cells = [_NEITHER] * (rows * columns)
    for patch in masks.context[image, 0].tolist():
        cells[patch] = _CONTEXT
    for number, block in enumerate(masks.targets[image, 0].tolist(), start=1):
        for patch in block:
            cells[patch] = str(number % 10)
    return ["".join(cells[row * columns : (row + 1) * columns]) for row in range(rows)]
