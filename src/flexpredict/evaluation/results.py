"""What an evaluation gives: numbers, and everything that is needed to get them again."""

import csv
import io
import json
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically

_FIRST_COLUMNS = ("encoder", "fingerprint", "date")
_LIBRARIES = ("flexpredict", "torch", "torchvision", "timm", "transformers", "numpy", "pillow")


@dataclass
class Result:
    """One encoder on one task."""

    task: str  # "linear probe", "davis", "clevr count" ...
    encoder: str  # what it is, in words
    data: str
    numbers: dict[str, float]  # accuracies in per cent
    protocol: dict[str, Any]  # encoder's fingerprint, layers, pooling, image size, seeds, counts, options
    details: dict[str, Any] = field(default_factory=dict)  # per class, per sequence, per subset


def write_result(result: Result, path: Path) -> None:
    """As JSON, with date, versions and command."""
    written = {
        **asdict(result),
        "date": _now(),
        "command": shlex.join(sys.argv),
        "versions": {"python": platform.python_version(), **_versions()},
    }
    _write(path, json.dumps(written, indent=2, default=str) + "\n")


def append_to_table(result: Result, table: Path) -> None:
    """Add the numbers to a CSV with one row an encoder and one column a number, so that encoders can be compared.

    The row of an encoder is found by its name and the fingerprint of its weights; a number that is there already is
    replaced. Settings other than the usual ones make another number of it.
    """
    rows = read_table(table)
    fingerprint = str(result.protocol.get("fingerprint", ""))
    same = [row for row in rows if (row["encoder"], row["fingerprint"]) == (result.encoder, fingerprint)]
    row = same[0] if same else {"encoder": result.encoder, "fingerprint": fingerprint}
    if not same:
        rows.append(row)
    row["date"] = _now()
    what = ", ".join(filter(None, (result.task, result.data, result.protocol.get("settings"))))
    for name, value in result.numbers.items():
        row[f"{what}: {name}"] = f"{value:.2f}"
    columns = list(dict.fromkeys([*_FIRST_COLUMNS, *(column for entry in rows for column in entry)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write(table, text.getvalue())


def read_table(table: Path) -> list[dict[str, str]]:
    """The rows of a table of results, none if it is not there yet. Other files are refused, not overwritten."""
    if not table.exists():
        return []
    try:
        with table.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows, columns = list(reader), reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table} cannot be read as a table of results: {error}. Name another --table.") from error
    lacking = [column for column in _FIRST_COLUMNS if column not in columns]
    if lacking and (columns or table.stat().st_size):
        raise UserError(
            f"{table} is not a table of results (it lacks the column {lacking[0]}), and is left as it is. Name "
            "another --table."
        )
    if any(None in row or None in row.values() for row in rows):
        raise UserError(f"{table} has rows of different lengths. Mend it, or name another --table.")
    return rows


def print_numbers(console: Console, title: str, rows: Mapping[str, Mapping[str, str]]) -> None:
    """A table of one line for each entry; all have the same columns."""
    table = Table()
    table.add_column("", overflow="fold")
    for column in next(iter(rows.values())):
        table.add_column(Text(column), justify="right", overflow="fold")
    for name, cells in rows.items():
        table.add_row(Text(name), *cells.values())
    # Before the table and not part of it: a title is broken into lines as short as the table is narrow.
    console.print(title, highlight=False, markup=False)
    console.print(table)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Name another place.") from error


def _versions() -> dict[str, str]:
    installed = {distribution.name.lower() for distribution in metadata.distributions()}
    return {name: metadata.version(name) for name in _LIBRARIES if name in installed}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
