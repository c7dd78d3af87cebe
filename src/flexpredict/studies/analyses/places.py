"""Places on a grid of patches, as people write them: ROW,COLUMN, counted from 0."""

import re

from flexpredict.errors import UserError
from flexpredict.sizes import Grid


def place(text: str, grid: Grid, option: str) -> int:
    """The index of the patch at "ROW,COLUMN", row by row over the grid."""
    found = re.fullmatch(r"(\d+)\s*,\s*(\d+)", text.strip())
    if found is None:
        raise UserError(f"{option}={text} is no place. Give ROW,COLUMN, both counted from 0, such as {option}=2,3.")
    row, column = int(found[1]), int(found[2])
    if row >= grid[0] or column >= grid[1]:
        raise UserError(
            f"{option}={text} is outside the grid of {grid[0]}x{grid[1]} patches: rows are 0 to {grid[0] - 1}, "
            f"columns 0 to {grid[1] - 1}."
        )
    return row * grid[1] + column


def in_words(index: int, grid: Grid) -> str:
    return f"row {index // grid[1]}, column {index % grid[1]}"
