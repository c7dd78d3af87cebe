"""The log of a run: lines of metrics, with means since the line before, and warnings in words."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from flexpredict.files import append_line
from flexpredict.runs.metrics import PROBES, Logger, Record, keep_until, open_loggers, read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.health import Watch
from flexpredict.training.progress import TrainingProgress


class RunLog:
    """Records every step and writes lines of metrics. Continues after the step of `state`."""

    def __init__(
        self,
        fabric: Fabric,
        folder: RunFolder,
        progress: TrainingProgress,
        state: Mapping[str, Any],
        loggers: Sequence[str] = (),
    ) -> None:
        self._fabric, self._folder, self._progress = fabric, folder, progress
        self._loggers: list[Logger] = []
        self.rewind(state)
        if fabric.is_global_zero:
            config = folder.load_config()
            self._loggers = open_loggers(loggers, folder.path, folder.metrics, config, state["step"])

    def rewind(self, state: Mapping[str, Any]) -> None:
        """Forget what came after a checkpoint with this state: it will be logged again."""
        self._watch, self._written = Watch(), False
        self._probed: dict[str, tuple[float, float]] = {}  # the first accuracy and the last
        self._loss_sum = torch.tensor(state.get("loss_sum", 0.0), dtype=torch.float64, device=self._fabric.device)
        self._loss_count: int = state.get("loss_count", 0)
        self._clear_speed()
        if self._fabric.is_global_zero:
            for path in (self._folder.metrics, self._folder.warnings, self._folder.skipped):
                keep_until(path, state["step"] or -1)  # at step 0 nothing is kept
            for record in read_records(self._folder.metrics):
                self._look(record)

    def add(self, loss: Tensor, images: int, waited: float, seconds: float) -> None:
        """Record a step. images: of this rank; waited: seconds for them."""
        self._loss_sum += loss
        self._loss_count += 1
        self._images += images * self._fabric.world_size
        self._seconds += seconds
        self._waited += waited
        if not self._written:  # before the first line, show what this rank knows
            self._progress.numbers({"loss": float(loss), **self._speed()})

    def write(self, step: int, record: Record, skipped: int) -> float | None:
        """Write a line of metrics: `record` and the means since the line before. Returns the mean loss.

        skipped: images that could not be read so far.
        """
        loss, means = None, {}
        if self._seconds:  # else no step was made: at the start, or if all batches were left out
            loss = self._mean_loss()
            means = {"loss": loss, **self._speed()}
        record = {**means, "skipped": float(skipped), **record}
        for logger in self._loggers:
            logger.log(step, record)
        for text in self._look(record):
            self.warn(step, text)
        self._progress.numbers(record, self._probed_in_words())
        self._loss_sum.zero_()
        self._loss_count = 0
        self._clear_speed()
        self._written |= loss is not None
        return loss

    def warn(self, step: int, text: str) -> None:
        """Warn on the terminal and in warnings.jsonl."""
        self._progress.warn(text)
        self.keep_warning(step, text)

    def keep_warning(self, step: int, text: str) -> None:
        """Warn in warnings.jsonl alone."""
        if self._fabric.is_global_zero:
            append_line(self._folder.warnings, {"step": step, "text": text})

    def state(self) -> dict[str, Any]:
        """What a resumed run must know to write the next line as if nothing had happened."""
        return {"loss_sum": float(self._loss_sum), "loss_count": self._loss_count}

    def close(self) -> None:
        for logger in self._loggers:
            logger.close()

    def _look(self, record: Record) -> list[str]:
        """New warnings for a record."""
        for name in PROBES.keys() & record.keys():
            first, _ = self._probed.get(name, (record[name], 0.0))
            self._probed[name] = first, record[name]
        return self._watch.look(record)

    def _probed_in_words(self) -> str:
        name = next((name for name in PROBES if name in self._probed), None)
        return "" if name is None else "{} {:.1%} → {:.1%}".format(PROBES[name], *self._probed[name])

    def _speed(self) -> Record:
        return {"images_per_second": self._images / self._seconds, "data_wait": self._waited / self._seconds}

    def _mean_loss(self) -> float:
        """The mean loss of all ranks."""
        mean = self._fabric.all_reduce(self._loss_sum / self._loss_count, reduce_op="mean")
        return float(mean) if isinstance(mean, Tensor) else float("nan")

    def _clear_speed(self) -> None:
        self._images, self._seconds, self._waited = 0, 0.0, 0.0
