"""The output of an analysis: a picture, its data, and a description in words."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table
from rich.text import Text

from flexpredict.errors import UserError
from flexpredict.files import write_atomically
from flexpredict.showing import SimpleResult

Row = dict[str, str]


@dataclass(frozen=True)
class Analysis(SimpleResult):
    """A figure, the file with its data, a description in words, and a table of the main numbers."""

    picture: Path
    data: Path
    lines: tuple[str, ...]
    rows: tuple[Row, ...] = ()  # of the table, by heading

    @property
    def files(self) -> list[Path]:
        return [self.picture, self.data]

    def table(self) -> Table:
        table = Table(*(self.rows[0] if self.rows else ()))
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row.values()))
        return table

    def tables(self) -> list[tuple[str, Table | None]]:
        return [("", self.table() if self.rows else None), ("\n".join(self.lines), None)]

    def to_dict(self) -> dict[str, Any]:
        files = {"picture": str(self.picture), "data": str(self.data)}
        return {**files, "lines": list(self.lines), "table": [dict(row) for row in self.rows]}


def places_for(out: Path, name: str, suffix: str) -> tuple[Path, Path]:
    """Paths for the picture and its data: NAME.png and NAME.SUFFIX in the folder `out`, which is created."""
    if out.exists() and not out.is_dir():
        raise UserError(f"out={out} is a file. Name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    return out / f"{name}.png", out / f"{name}.{suffix}"


def write_arrays(path: Path, **arrays: ArrayLike) -> None:
    """Writes an .npz file."""
    values: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **values)

    write_atomically(path, write)
