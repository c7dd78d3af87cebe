"""Results of evaluations: numbers, everything needed to reproduce them, and the files they are written to."""

import csv
import hashlib
import json
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.errors import UserError
from flexpredict.files import write_csv_atomically, write_json_atomically
from flexpredict.runs.result_files import measured_in_words, unusual_settings
from flexpredict.runs.run_folder import is_run, versions
from flexpredict.settings.ranges import Checked
from flexpredict.showing import numbers_table

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from flexpredict.encoders.image_encoder import ImageEncoder

AUTO = "auto"
_FIRST_COLUMNS = ("encoder", "fingerprint", "date")
_LIBRARIES = ("flexpredict", "torch", "torchvision", "timm", "transformers", "numpy", "pillow")
# Student's t at 97.5 %, for 1, 2, … degrees of freedom; above, about 1 + 1.21 / freedom times the normal quantile.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.960


@dataclass
class Result:
    """One encoder on one task. An unfinished encoder, shared images and unreadable images give warnings."""

    task: str  # "probe", "davis", "clevr count" ...
    encoder: str  # what it is, in words
    data: str
    numbers: dict[str, float]  # accuracies in percent
    protocol: dict[str, Any]  # the encoder's fingerprint, layers, pooling, image size, seeds, counts, settings
    details: dict[str, Any] = field(default_factory=dict)  # per class, per sequence, per subset
    title: str = "Accuracy on the test images, frozen encoder (%)"
    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.protocol.get("unfinished"):
            self.warnings.append(f"The {self.encoder}: these are not the numbers of the finished run.")
        if overlap := self.protocol.get("overlap"):
            self.warnings.append(f"{overlap} So these numbers do not show how well the encoder does on new images.")
        if seen := self.protocol.get("seen_in_pretraining"):
            self.warnings.append(f"{seen} On new images the encoder may do worse.")
        for role in ("train", "test"):
            counts = self.protocol.get(role) or {}
            if counts.get("unreadable"):
                self.warnings.append(
                    f"{counts['unreadable']} images of {counts['data']} could not be read and were left out."
                )

    def table(self) -> Table:
        """One line for each number."""
        return numbers_table({name: {self.data: number} for name, number in self.shown_numbers().items()})

    def tables(self) -> list[tuple[str, Table]]:
        """The table, with a title that names the encoder."""
        return [(self.full_title(), self.table())]

    def full_title(self) -> str:
        """The title with the encoder, and with settings other than the defaults."""
        return ", ".join((f"{self.title}: {self.encoder}", *unusual_settings(self.protocol)))

    def column(self) -> str:
        """The heading of its columns in a table of encoders, different for each protocol."""
        return measured_in_words(self.task, self.data, self.protocol)

    def digest(self) -> str:
        """A short hash of the protocol."""
        protocol = json.dumps(self.protocol, sort_keys=True, default=str)
        return hashlib.blake2b(protocol.encode(errors="surrogateescape"), digest_size=4).hexdigest()

    def shown_numbers(self) -> dict[str, str]:
        """Each number, with its 95 % interval if it has one."""
        shown = {}
        for name, value in self.numbers.items():
            interval = self.details.get(name, {}).get("interval_95")
            shown[name] = f"{value:.2f}" if interval is None else f"{value:.2f} ± {interval:.2f}"
        return shown

    def to_dict(self) -> dict[str, Any]:
        names = ("task", "encoder", "data", "numbers", "protocol", "details", "warnings")
        return {name: getattr(self, name) for name in names}


class Results(list[Result]):
    """One encoder on several tasks."""

    @property
    def files(self) -> list[Path]:
        return list(dict.fromkeys(path for result in self for path in result.files))

    @property
    def warnings(self) -> list[str]:
        return list(dict.fromkeys(warning for result in self for warning in result.warnings))

    def table(self) -> Table:
        """One line for each task or, if tasks repeat, for each data set."""
        if len(self) == 1:
            return self[0].table()
        differing = "task" if len({result.task for result in self}) == len(self) else "data"
        return numbers_table({getattr(result, differing): result.shown_numbers() for result in self})

    def tables(self) -> list[tuple[str, Table]]:
        return [(self[0].full_title(), self.table())]

    def to_dict(self) -> dict[str, Any]:
        return {"results": [result.to_dict() for result in self]}


@dataclass(frozen=True, kw_only=True)
class ResultTable(Checked):
    """The table that compares encoders. A file of another kind is refused before any work.

    Args:
        table: a CSV file to add the numbers to, one row for each encoder.
    """

    table: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table is not None:
            read_table(Path(self.table))

    def save(self, result: Result, fabric: "Fabric", alone: bool = True) -> None:
        """Write the result, in the first process only. alone: whether it is the only result of the command."""
        if self.table is not None and fabric.is_global_zero:
            append_to_table(result, Path(self.table))
            result.files.append(Path(self.table))


@dataclass(frozen=True, kw_only=True)
class ResultPlaces(EncoderChoice, ResultTable):
    """Where results are written.

    Args:
        out: folder or .json file to write the results to (default: auto, which is RUN/results for a run folder, where
            its page finds them, and results for any other encoder).
    """

    out: str | Path | None = AUTO

    def __post_init__(self) -> None:
        super().__post_init__()
        place = self.place
        if place is not None and place.is_file() and place.suffix != ".json":
            raise UserError(f"out={place} is a file. Name a folder, or a file that ends in .json.")

    @property
    def place(self) -> Path | None:
        """The folder or .json file; None if nothing is written."""
        return None if self.out is None else place_of_results(self.out, self.encoder)

    def save(self, result: Result, fabric: "Fabric", alone: bool = True) -> None:
        if (place := self.place) is not None and fabric.is_global_zero:
            path = _place(result, place, alone)
            write_result(result, path)
            result.files.append(path)
        super().save(result, fabric, alone)


def place_of_results(out: str | Path, encoder: object, kind: str = "") -> Path:
    """`out`; or, if that is auto, a folder in the evaluated run, where its page finds the results.

    For any other encoder, and for a run that is read-only, auto is a folder in the working directory.

    Args:
        encoder: as given. A loaded encoder may have been changed since, so it does not stand for its run.
        kind: the folder of results that have one of their own.
    """
    if out != AUTO:
        return Path(out)
    run = Path(encoder).expanduser() if isinstance(encoder, str | os.PathLike) else None
    if run is not None and is_run(run) and os.access(run, os.W_OK):
        return run / (kind or "results")
    return Path("results", kind)


def encoder_facts(encoder: "ImageEncoder") -> dict[str, Any]:
    """Facts about the encoder, with which every protocol begins."""
    return {"encoder": encoder.name, "fingerprint": encoder.fingerprint(), "unfinished": encoder.unfinished}


def write_result(result: Result, path: Path) -> None:
    """Write a result as JSON, with date, versions and command."""
    made = {"date": _now(), "command": shlex.join(sys.argv)}
    software = {"python": platform.python_version(), **versions(_LIBRARIES)}
    write_json_atomically(path, {**result.to_dict(), **made, "versions": software})


def append_to_table(result: Result, table: Path) -> None:
    """Add the numbers of a result to a CSV with one row for each encoder and one column for each number.

    The row is found by the name of the encoder and the fingerprint of its weights. An existing number is replaced;
    other protocols have other columns.
    """
    rows = read_table(table)
    fingerprint = str(result.protocol.get("fingerprint", ""))
    same = [row for row in rows if (row["encoder"], row["fingerprint"]) == (result.encoder, fingerprint)]
    if not same:
        rows.append(dict.fromkeys(_FIRST_COLUMNS, "") | {"encoder": result.encoder, "fingerprint": fingerprint})
    row = same[0] if same else rows[-1]
    row["date"] = _now()
    row |= {f"{result.column()}: {name}": f"{value:.2f}" for name, value in result.numbers.items()}
    write_csv_atomically(table, rows)


def read_table(table: Path) -> list[dict[str, str]]:
    """The rows of the table; empty if it does not exist yet. Files of another kind are refused."""
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


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and half the width of its 95 % interval (None for a single value)."""
    freedom = len(values) - 1
    mean = sum(values) / len(values)
    if freedom == 0:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / freedom)
    quantile = _T[freedom - 1] if freedom <= len(_T) else _NORMAL * (1 + 1.21 / freedom)
    return mean, quantile * deviation / math.sqrt(len(values))


def _place(result: Result, out: Path, alone: bool) -> Path:
    """One file for each protocol, so that no result replaces another."""
    if out.suffix == ".json" and alone:
        if _may_be_replaced(out, result):
            return out
        result.warnings.append(f"{out} holds something other than a result of this protocol, so it is left as it is.")
        return out.with_name(f"{out.stem}-{result.digest()}.json")
    data = "/".join(Path(result.data).parts[-2:])
    which = "context" if result.encoder.startswith("context ") else ""
    encoder = str(result.protocol.get("encoder", ""))
    words = (result.task, data, encoder, which, *unusual_settings(result.protocol), result.digest())
    name = "-".join(re.sub(r"[^\w.]+", "-", word).strip("-.") for word in words if word)
    return out.with_name(f"{out.stem}-{name}.json") if out.suffix == ".json" else out / f"{name}.json"


def _may_be_replaced(path: Path, result: Result) -> bool:
    """Whether a file is missing, or holds a result of the same protocol."""
    try:
        return bool(json.loads(path.read_bytes())["protocol"] == json.loads(json.dumps(result.protocol, default=str)))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
