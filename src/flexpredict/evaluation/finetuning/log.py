"""Writes metrics.jsonl of a fine-tuning run, and the images that could not be read."""

import json
import math
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from flexpredict.data.loader import Batch
from flexpredict.errors import UserError
from flexpredict.runs.metrics import MetricsFile, Record, keep_until, read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.engine import gather
from flexpredict.training.progress import TrainingProgress


class FinetuneLog:
    """Collects every step; `write` adds a line with the means since the previous one. Only the first rank writes."""

    def __init__(self, fabric: Fabric, folder: RunFolder, progress: TrainingProgress, state: dict[str, Any]) -> None:
        self._fabric, self._folder, self._progress = fabric, folder, progress
        self._file: MetricsFile | None = None
        if fabric.is_global_zero:
            # Lines that an interrupted run wrote after its last checkpoint will be written again.
            for path in (folder.metrics, folder.skipped):
                keep_until(path, state["step"])
            self._file = MetricsFile(folder.metrics)
        self._skipped = {record["path"] for record in read_records(folder.skipped)}
        self._newly_skipped: dict[str, str] = {}
        self._loss_sum = torch.tensor(state.get("loss_sum", 0.0), dtype=torch.float64, device=fabric.device)
        self._loss_count: int = state.get("loss_count", 0)
        self._images = 0
        self._seconds = self._waited = 0.0

    def step(self, loss: Tensor, batch: Batch, waited: float, seconds: float) -> None:
        self._loss_sum += loss
        self._loss_count += 1
        self._images += len(batch.images) * self._fabric.world_size
        self._seconds += seconds
        self._waited += waited
        self._newly_skipped |= {image.name: image.reason for image in batch.skipped}

    def write(self, step: int, record: Record) -> None:
        loss = self._shared_loss_sum(step) / self._loss_count
        speed, wait = self._images / self._seconds, self._waited / self._seconds
        self._settle(step)
        record = {**record, "loss": loss, "images_per_second": speed, "data_wait": wait}
        self._progress.numbers(loss, speed, wait)
        if self._file is not None:
            self._file.log(step, {**record, "skipped": float(len(self._skipped))})
        self._loss_sum.zero_()
        self._loss_count = self._images = 0
        self._seconds = self._waited = 0.0

    def state(self, step: int) -> dict[str, Any]:
        """What a resumed run needs to write the same next line."""
        self._settle(step)
        return {"loss_sum": self._shared_loss_sum(step), "loss_count": self._loss_count}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _shared_loss_sum(self, step: int) -> float:
        """The mean over ranks. Raises before a broken model is logged or saved."""
        mean = self._fabric.all_reduce(self._loss_sum, reduce_op="mean")
        assert isinstance(mean, Tensor)
        self._loss_sum = mean
        if not math.isfinite(value := float(mean)):
            self.close()
            raise UserError(
                f"The loss was NaN or infinite at or before step {step}, so training stopped. The last checkpoint in "
                f"{self._folder.checkpoints} is from before. Start a new run with a lower lr, more warmup_epochs, "
                "clip_grad=1.0 or precision=32-true."
            )
        return value

    def _settle(self, step: int) -> None:
        """Write down, once, the images that any rank could not read."""
        found = {name: reason for new in gather(self._fabric, self._newly_skipped) for name, reason in new.items()}
        found = {name: reason for name, reason in found.items() if name not in self._skipped}
        self._newly_skipped = {}
        self._skipped |= found.keys()
        if found and self._fabric.is_global_zero:
            with self._folder.skipped.open("a", encoding="utf-8") as file:
                for name, reason in found.items():
                    file.write(json.dumps({"step": step, "path": name, "reason": reason}) + "\n")
