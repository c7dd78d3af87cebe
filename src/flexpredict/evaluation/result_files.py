"""Results on disk: a JSON file for each, and a CSV that compares encoders."""

import csv
import io
import json
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.errors import UserError
from flexpredict.evaluation.results import Result
from flexpredict.files import write_text_atomically
from flexpredict.settings.ranges import Checked

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_FIRST_COLUMNS = ("encoder", "fingerprint", "date")
_LIBRARIES = ("flexpredict", "torch", "torchvision", "timm", "transformers", "numpy", "pillow")


@dataclass(frozen=True, kw_only=True)
class ResultTable(Checked):
    """Where encoders are compared. A file that is no such table is refused before any work.

    Args:
        table: a CSV file to add the numbers to, one row for each encoder.
    """

    table: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table is not None:
            read_table(Path(self.table))

    def save(self, results: Sequence[Result], fabric: "Fabric") -> None:
        """Write down the results; only the first process does."""
        if self.table is not None and fabric.is_global_zero:
            for result in results:
                append_to_table(result, Path(self.table))
                result.files.append(Path(self.table))


@dataclass(frozen=True, kw_only=True)
class ResultPlaces(ResultTable):
    """Where results are written.

    Args:
        out: folder or .json file to write the results to.
    """

    out: str | Path | None = "results"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is not None and Path(self.out).is_file() and Path(self.out).suffix != ".json":
            raise UserError(f"out={self.out} is a file. Name a folder, or a file that ends in .json.")

    def save(self, results: Sequence[Result], fabric: "Fabric") -> None:
        if self.out is not None and fabric.is_global_zero:
            for result in results:
                path = _path(result, Path(self.out), alone=len(results) == 1)
                write_result(result, path)
                result.files.append(path)
        super().save(results, fabric)


def write_result(result: Result, path: Path) -> None:
    """As JSON, with date, versions and command."""
    installed = {distribution.name.lower() for distribution in metadata.distributions()}
    versions = {name: metadata.version(name) for name in _LIBRARIES if name in installed}
    written = {
        **result.to_dict(),
        "date": _now(),
        "command": shlex.join(sys.argv),
        "versions": {"python": platform.python_version(), **versions},
    }
    _write(path, json.dumps(written, indent=2, default=str) + "\n")


def append_to_table(result: Result, table: Path) -> None:
    """Add the numbers of a result to a CSV with one row for each encoder and one column for each number.

    The row is found by the name of the encoder and the fingerprint of its weights. A number that is there already is
    replaced. Settings other than the defaults make a column of their own.
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
    """The rows; none if there is no such file yet. Files of another kind are refused, never overwritten."""
    if not table.exists():
        return []
    try:
        with table.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows, columns = list(reader), reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table} cannot be read as a table of results: {error}. Choose another table.") from error
    lacking = [column for column in _FIRST_COLUMNS if column not in columns]
    if lacking and (columns or table.stat().st_size):
        raise UserError(
            f"{table} is not a table of results (it lacks the column {lacking[0]}), so it is left as it is. Choose "
            "another table."
        )
    if any(None in row or None in row.values() for row in rows):
        raise UserError(f"{table} has rows of different lengths. Repair it, or choose another table.")
    return rows


def _path(result: Result, out: Path, alone: bool) -> Path:
    """A file of its own for each task, data set, encoder and setting, so that no result overwrites another."""
    data = "/".join(Path(result.data).parts[-2:])
    which = "context" if result.encoder.startswith("context ") else ""
    words = (result.task, data, result.protocol["encoder"], which, result.protocol["settings"])
    name = "-".join(re.sub(r"[^\w.]+", "-", word).strip("-.") for word in words if word)
    if out.suffix == ".json":
        return out if alone else out.with_name(f"{out.stem}-{name}.json")
    return out / f"{name}.json"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Choose another place.") from error


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
