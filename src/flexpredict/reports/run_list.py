"""The runs below a folder, with the numbers shown in their list."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError
from flexpredict.progress import duration
from flexpredict.reports.numbers import format_number, position_kind, said
from flexpredict.reports.sections import METRICS
from flexpredict.runs.run_folder import is_run
from flexpredict.runs.run_record import Run, number, read_run
from flexpredict.runs.series import is_finite

MOST_COMPARED = 16  # runs on one page: more lines in a chart cannot be told apart
_MOST_RUNS = 1000
_DEEPEST = 6  # folders below the root
_STILL_TRAINING = 120  # seconds since the last line of the log
_SPARK_POINTS = 60
COLUMNS = {key: METRICS[key] for key in ("loss", "linear_accuracy", "knn_accuracy", "location_share", "target_rank")}


@dataclass(frozen=True)
class RunFiles:
    """A run folder as it was read. stamp: changes whenever its files do."""

    folder: Path
    stamp: tuple[tuple[str, int, int], ...]
    record: Run


class RunList:
    """The runs below `root`, read again only when their files have changed. Names are paths from the root."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UserError(f"There is no folder {root}. Name the folder that your runs are in.")
        self.root = root.resolve()
        self._known: dict[str, RunFiles] = {}

    def read(self) -> dict[str, Run]:
        """All runs that can be read, by name."""
        found: dict[str, RunFiles] = {}
        for folder in find_runs(self.root):
            name = folder.relative_to(self.root).as_posix()
            stamp = _stamp(folder)
            known = self._known.get(name)
            if known is not None and known.stamp == stamp:
                found[name] = known
                continue
            try:
                found[name] = RunFiles(folder, stamp, read_run(folder))
            except UserError:  # its config.yaml is incomplete or broken
                continue
        self._known = found
        return {name: files.record for name, files in found.items()}

    def folder(self, name: str) -> Path:
        """The folder of a listed run."""
        return self._known[name].folder


def find_runs(root: Path) -> Iterator[Path]:
    """Run folders in and below a folder, sorted by name. Links to the outside are not followed."""
    count = 0
    for path, folders, _ in os.walk(root):
        folder = Path(path)
        if is_run(folder):
            folders.clear()  # folders inside belong to the run
            if count < _MOST_RUNS and all(inside.resolve().is_relative_to(root) for inside in folder.iterdir()):
                count += 1
                yield folder
        elif len(folder.relative_to(root).parts) >= _DEEPEST:
            folders.clear()
        folders.sort()


def listed(name: str, run: Run, changed: float) -> dict[str, Any]:
    """A row of the list. changed: when the log was last written to."""
    done = _share_done(run)
    training = time.time() - changed < _STILL_TRAINING
    state = "broken" if run.broke_down else "finished" if done == 1 else "training" if training else "stopped"
    return {
        "name": name,
        "model": said(run.config.get("model")),
        "data": said(run.config.get("data")),
        "positions": position_kind(run.config),
        "state": state,
        "done": done,
        "steps": run.steps,
        "time": {"value": run.seconds, "text": duration(run.seconds) if run.seconds else ""},
        "numbers": {key: _last(run, key) for key in COLUMNS},
        "loss": _spark(run),
    }


def last_change(folder: Path) -> float:
    try:
        return (folder / "metrics.jsonl").stat().st_mtime
    except OSError:
        return 0.0


def _last(run: Run, key: str) -> dict[str, Any] | None:
    metric, series = METRICS[key], run.series.get(key)
    if series is None or series.last is None:
        return None
    value = series.last * metric.factor([series.last])
    return {"value": value if is_finite(value) else None, "text": format_number(value, metric.digits, metric.unit)}


def _share_done(run: Run) -> float | None:
    epochs = number(run.config.get("epochs"))
    if not epochs or run.epoch is None:
        return None
    batch, images = number(run.config.get("batch_size")), number(run.environment.get("images"))
    # The last batch may go beyond the last epoch.
    last = epochs if not batch or not images else epochs - batch / images
    return 1.0 if run.epoch > last else run.epoch / epochs


def _spark(run: Run) -> list[float]:
    """The course of the loss, for a word-sized drawing."""
    series = run.series.get("loss")
    values = [] if series is None else [bucket.mean[1] for bucket in series.buckets if bucket.count]
    step = max(1, -(-len(values) // _SPARK_POINTS))
    return [float(f"{value:.4g}") for value in values[::step]]


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    kinds = (".yaml", ".json", ".jsonl", ".html", ".safetensors")
    # Folders too: their times change when an evaluation writes into them.
    files = [file for file in folder.iterdir() if file.suffix in kinds or file.is_dir()]
    return tuple(sorted((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files))
