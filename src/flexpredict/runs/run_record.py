"""Reads the folder of a run into a record whose size does not depend on the length of the run."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError
from flexpredict.runs.result_files import results_of
from flexpredict.runs.run_folder import RunFolder
from flexpredict.runs.series import Series, is_finite

MOST_WARNINGS = 50  # different ones
MOST_SKIPPED = 100  # files named on the page; skipped.jsonl names all
NOT_DRAWN = {"step", "epoch"}
# Strict JSON has null for a number that is not finite. Booleans are not numbers.
DRAWN_TYPES = {int, float, type(None)}
STOPPED = "so training stopped"  # in the warning of a run whose loss was not a number


@dataclass
class Warned:
    """A warning, and how often it was given."""

    count: int = 0
    first: float | None = None
    last: float | None = None


@dataclass
class Run:
    """What a run folder holds, in a size that does not depend on the length of the run."""

    name: str
    config: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    steps: float = 0
    epoch: float | None = None
    clock: Series = field(default_factory=Series)  # seconds of training up to each step, from images per second
    warnings: dict[str, Warned] = field(default_factory=dict)
    more_warnings: int = 0
    results: dict[str, Any] = field(default_factory=dict)  # by what was measured
    skipped: list[tuple[str, str]] = field(default_factory=list)  # path, reason
    more_skipped: int = 0
    unreadable: list[str] = field(default_factory=list)  # what could not be read, in words
    encoders: tuple[str, ...] = ()  # names of the encoder files that are there

    @property
    def broke_down(self) -> bool:
        """Whether it ended because its loss was not a number, and was not resumed."""
        return any(STOPPED in text and (warned.last or 0) >= self.steps for text, warned in self.warnings.items())

    @property
    def seconds(self) -> float:
        return self.clock.last or 0.0

    @property
    def images(self) -> float | None:
        batch = number(self.config.get("batch_size"))
        return self.steps * batch if batch and self.steps else None


def read_run(run: Path) -> Run:
    """Read a run folder. Only `config.yaml` must be there; anything else missing or broken is left out or noted."""
    if not run.is_dir():
        raise UserError(
            f"There is no run folder at {run}. Give the folder that a pre-training run wrote to (its `out`)."
        )
    folder = RunFolder(run)
    if not folder.config.is_file():
        raise UserError(f"{folder.config} is missing, so {run} is not a run folder. Give the folder of a run.")
    record = Run(name=run.resolve().name, config=folder.load_config())
    _read_metrics(record, folder.metrics)
    for line in _json_lines(record, folder.warnings):
        _add_warning(record, str(line.get("text", "")), number(line.get("step")))
    for line in _json_lines(record, folder.skipped):
        if len(record.skipped) < MOST_SKIPPED:
            record.skipped.append((str(line.get("path", "")), str(line.get("reason", ""))))
        else:
            record.more_skipped += 1
    environment = _read_json(record, folder.environment)
    record.environment = environment if isinstance(environment, dict) else {}
    record.results = _named_results(_read_json(record, run / "results.json")) | results_of(run)
    record.encoders = tuple(path.name for path in (folder.encoder, folder.best_encoder) if path.is_file())
    return record


def _read_json(record: Run, path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        record.unreadable.append(f"{path.name} could not be read: {error}")
        return None


def _json_lines(record: Run, path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, line by line. A torn last line is normal: the run may be writing it, or was killed."""
    broken = 0
    try:
        with path.open("rb") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError):
                    line = None
                if isinstance(line, dict):
                    yield line
                elif text.endswith(b"\n") and text.strip():
                    broken += 1
    except FileNotFoundError:
        return
    except OSError as error:
        record.unreadable.append(f"{path.name} could not be read: {error}")
    if broken:
        record.unreadable.append(f"{broken} {'line' if broken == 1 else 'lines'} of {path.name} could not be read.")


def _read_metrics(record: Run, path: Path) -> None:
    batch = number(record.config.get("batch_size"))
    timed = 0.0  # the step up to which time has been counted; what a resumed run repeats is counted once
    for line in _json_lines(record, path):
        step = number(line.get("step"))
        record.steps = step = record.steps + 1 if step is None else step
        epoch = number(line.get("epoch"))
        record.epoch = record.epoch if epoch is None else epoch
        speed = number(line.get("images_per_second"))
        if batch and speed and speed > 0 and step > timed:
            record.clock.add(step, record.seconds + (step - timed) * batch / speed)
            timed = step
        for key, value in line.items():
            if type(value) not in DRAWN_TYPES or key in NOT_DRAWN:
                continue
            if key not in record.series:
                record.series[key] = Series()
            usable = number(value)
            record.series[key].add(step, math.nan if usable is None else usable)


def number(value: object) -> float | None:
    """The value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
        return None
    return float(value)


def _add_warning(record: Run, text: str, step: float | None) -> None:
    if text not in record.warnings and len(record.warnings) >= MOST_WARNINGS:
        record.more_warnings += 1
        return
    warned = record.warnings.setdefault(text, Warned())
    warned.count += 1
    warned.last = step
    if warned.count == 1:
        warned.first = step


def _named_results(results: Any) -> dict[str, Any]:
    """Flattens nested results, or rows of words and numbers, into one value for each name."""
    if isinstance(results, dict):
        return dict(flat(results))
    named: dict[str, Any] = {}
    for row in results if isinstance(results, list) else []:
        entries = row.items() if isinstance(row, dict) else [("value", row)]
        numbers: dict[str, Any] = {str(name): value for name, value in entries if isinstance(value, int | float)}
        words = [str(value) for name, value in entries if name not in numbers]
        for name, value in (numbers or {"value": None}).items():
            named[", ".join(words + [name] * (name != "value" or not words))] = value
    return named


def flat(mapping: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as one list, the names joined by dots."""
    for name, value in mapping.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
