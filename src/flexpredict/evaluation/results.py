"""What an evaluation gives: numbers, and everything that is needed to get them again."""

import csv
import io
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from flexpredict import __version__
from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically

_FIRST_COLUMNS = ("encoder", "fingerprint", "date")


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
        "command": " ".join(sys.argv),
        "versions": {"flexpredict": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(written, indent=2, default=str) + "\n")


def append_to_table(result: Result, table: Path) -> None:
    """Add the numbers to a CSV with one row an encoder and one column a number, so that encoders can be compared.

    The row of an encoder is found by its name and the fingerprint of its weights; a number that is there already is
    replaced.
    """
    rows: list[dict[str, str]] = []
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if rows and not set(_FIRST_COLUMNS) <= rows[0].keys():
            raise UserError(f"{table} is not a table of results (it lacks the columns {', '.join(_FIRST_COLUMNS)}).")
    fingerprint = str(result.protocol.get("fingerprint", ""))
    same = [row for row in rows if (row["encoder"], row["fingerprint"]) == (result.encoder, fingerprint)]
    row = same[0] if same else {"encoder": result.encoder, "fingerprint": fingerprint}
    if not same:
        rows.append(row)
    row["date"] = _now()
    for name, value in result.numbers.items():
        row[f"{result.task}, {result.data}: {name}"] = f"{value:.2f}"
    columns = list(dict.fromkeys([*_FIRST_COLUMNS, *(column for entry in rows for column in entry)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    table.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(table, text.getvalue())


def print_numbers(console: Console, title: str, rows: dict[str, dict[str, str]]) -> None:
    """A table of one line for each entry; all have the same columns."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in next(iter(rows.values())):
        table.add_column(column, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells.values())
    console.print(table)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
