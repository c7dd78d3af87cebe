"""What an analysis leaves behind: a picture, its data, and what is to be seen in words."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table
from rich.text import Text

from flexpredict.errors import UserError
from flexpredict.files import write_atomically, write_text_atomically
from flexpredict.showing import SimpleResult

Row = dict[str, str]


@dataclass(frozen=True)
class Analysis(SimpleResult):
    """A figure, its data, and what is to be seen in words.

    Args:
        picture: the figure.
        data: the file with its data.
        lines: what is to be seen, in sentences.
        rows: the numbers that matter, a dictionary of texts a row.
    """

    picture: Path
    data: Path
    lines: tuple[str, ...]
    rows: tuple[Row, ...] = ()

    @property
    def files(self) -> list[Path]:
        return [self.picture, self.data]

    def table(self) -> Table:
        """The numbers that matter."""
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
    """Where the picture and its data go: NAME.png and NAME.SUFFIX in the folder `out`, which is made."""
    if out.exists() and not out.is_dir():
        raise UserError(f"out={out} is a file. Name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    return out / f"{name}.png", out / f"{name}.{suffix}"


def write_arrays(path: Path, **arrays: ArrayLike) -> None:
    """An .npz file."""
    values: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **values)

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text_atomically(path, json.dumps(value, indent=1) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Rows with the same columns."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    write_atomically(path, write)
