"""What an analysis leaves behind: a picture, its data, and what is to be seen in words."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from rich.table import Table
from rich.text import Text

from flexpredict.errors import UserError
from flexpredict.files import write_atomically, write_text_atomically
from flexpredict.showing import SimpleResult

# Okabe and Ito's colors, which the color-blind can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GRAY = "#777777"
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "lines.linewidth": 1.8,
    "image.interpolation": "nearest",
}

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


@contextmanager
def drawing(path: Path, width: float, height: float, dpi: int = 100) -> Iterator[Figure]:
    """A figure of so many inches, written to `path` when it is done. No window is needed."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure

        def write(temporary: Path) -> None:
            # Without the version of the library in it, the same figure is the same file.
            figure.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})

        write_atomically(path, write)


def prepare(out: Path) -> Path:
    """The folder for the files."""
    if out.exists() and not out.is_dir():
        raise UserError(f"out={out} is a file. Name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    return out


def write_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
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
