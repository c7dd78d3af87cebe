"""Logs the metrics of a run: to metrics.jsonl and TensorBoard always, to W&B and MLflow on request."""

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from flexpredict.errors import UserError
from flexpredict.files import append_line, write_text_atomically

Record = dict[str, float]
PROBES = {"linear_accuracy": "linear", "knn_accuracy": "k-NN"}  # of an encoder in training, the better judge first


class Logger(Protocol):
    """Anything that takes a record of numbers at a step."""

    def log(self, step: int, record: Record) -> None: ...

    def close(self) -> None: ...


class MetricsFile:
    """metrics.jsonl, one record a line, each line on disk as soon as it is logged."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, step: int, record: Record) -> None:
        append_line(self._path, {"step": step, **record})

    def close(self) -> None: ...


class TensorBoard:
    """An events file in the run folder."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # imported late: it takes a second

        # Steps that an interrupted run logged after its last checkpoint will be logged again.
        self._writer = SummaryWriter(str(folder), purge_step=first_step or None)

    def log(self, step: int, record: Record) -> None:
        for name, value in record.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A W&B run named after the run folder; a resumed run continues in it."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project="flexpredict",
            name=folder.resolve().name,
            id=_id_of(folder),
            dir=str(folder),
            config=config,
            resume="allow",
        )

    def log(self, step: int, record: Record) -> None:
        self._run.log(record, step=step)

    def close(self) -> None:
        self._run.finish()


def _id_of(folder: Path) -> str:
    """The id of the W&B run, drawn once and kept in its folder: folders of the same name are different runs."""
    file = folder / "wandb_id.txt"
    if not file.is_file():
        write_text_atomically(file, uuid.uuid4().hex)
    return file.read_text(encoding="utf-8").strip()


class MLflow:
    """An MLflow run named after the run folder."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment("flexpredict")
        mlflow.start_run(run_name=folder.resolve().name)
        mlflow.log_params({name: str(value)[:500] for name, value in config.items()})

    def log(self, step: int, record: Record) -> None:
        self._mlflow.log_metrics(record, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


def open_loggers(
    names: Iterable[str], folder: Path, metrics: Path, config: dict[str, Any], step: int
) -> list[Logger]:
    """The loggers of a run that starts (or continues) after `step`."""
    keep_until(metrics, step)
    loggers: list[Logger] = [MetricsFile(metrics), TensorBoard(folder, step + 1 if step else 0)]
    optional: dict[str, type[WeightsAndBiases] | type[MLflow]] = {"wandb": WeightsAndBiases, "mlflow": MLflow}
    for name in names:
        try:
            loggers.append(optional[name](folder, config))
        except ImportError as error:
            raise UserError(
                f"Logging to {name} needs its package: pip install 'flexpredict[{name}]', or leave `loggers` out."
            ) from error
    return loggers


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a .jsonl file; a line that a killed process left incomplete is skipped."""
    if not path.is_file():
        return []
    records = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return records


def keep_until(path: Path, step: int) -> None:
    """Drop records of steps after `step` from a .jsonl file: a resumed run writes them again."""
    records = read_records(path)
    kept = [record for record in records if record.get("step", 0) <= step]
    if path.is_file():
        write_text_atomically(path, "".join(json.dumps(record) + "\n" for record in kept))
