"""The journal of a run: sums between two lines of metrics, the lines, warnings, skipped files, and trouble."""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from flexpredict.data.loader import Batch
from flexpredict.data.sources.streams import Place
from flexpredict.errors import UserError
from flexpredict.runs.metrics import Logger, Record, keep_until, open_loggers, read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.engine import gather
from flexpredict.training.health import Watch
from flexpredict.training.plan import Plan
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.skipped import SkippedImages


@dataclass
class Journal:
    """Takes every step, writes a line of metrics when one is due."""

    fabric: Fabric
    plan: Plan
    folder: RunFolder
    progress: TrainingProgress
    loggers: list[Logger]
    watch: Watch
    skipped: SkippedImages
    loss_sum: Tensor
    loss_count: int
    nonfinite_step: (
        Tensor  # -1, or the first step whose loss was not a number; on the device, so no step waits for it
    )
    images: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    places: dict[int, Place] = field(default_factory=dict)
    """Of a stream: how far each of its consumers has come."""
    best: float = 0.0
    """The best accuracy of the probe so far."""
    trouble: str = ""
    """Why this rank has no more batches, which the others do not know yet."""

    @classmethod
    def open(
        cls, fabric: Fabric, plan: Plan, folder: RunFolder, progress: TrainingProgress, state: dict[str, Any]
    ) -> "Journal":
        step = state["step"]
        loggers: list[Logger] = []
        watch = Watch()
        if fabric.is_global_zero:
            for path in (folder.warnings, folder.skipped):
                keep_until(path, step)
            config = folder.load_config()
            loggers = open_loggers(plan.recipe.loggers, folder.path, folder.metrics, config, step)
            for record in read_records(folder.metrics):
                watch.look(record)
        return cls(
            fabric,
            plan,
            folder,
            progress,
            loggers,
            watch,
            SkippedImages(fabric, plan, folder.skipped),
            torch.tensor(state.get("loss_sum", 0.0), dtype=torch.float64, device=fabric.device),
            state.get("loss_count", 0),
            torch.tensor(-1, device=fabric.device),
            best=state.get("best", 0.0),
            places={int(consumer): Place(*place) for consumer, place in state.get("places", {}).items()},
        )

    def due(self, step: int) -> bool:
        return step % self.plan.recipe.log_every == 0 or step == self.plan.steps or self.plan.probe_due(step)

    def step(self, step: int, loss: Tensor, batch: Batch, waited: float, seconds: float) -> None:
        self.loss_sum += loss
        self.loss_count += 1
        self.nonfinite_step = torch.where(
            (self.nonfinite_step < 0) & ~torch.isfinite(loss),
            torch.full_like(self.nonfinite_step, step),
            self.nonfinite_step,
        )
        self.images += len(batch.images) * self.fabric.world_size
        self.seconds += seconds
        self.waited += waited
        self.skipped.add(batch.skipped)
        if batch.place is not None:
            consumer, place = batch.place
            self.places[consumer] = place

    def write(self, step: int, record: Record) -> None:
        """A line of metrics: `record` and the means since the line before."""
        self.settle(step)
        self.refuse_nonfinite()
        mean = self.fabric.all_reduce(self.loss_sum / self.loss_count, reduce_op="mean")
        loss = float(mean) if isinstance(mean, Tensor) else float("nan")
        speed, wait = self.images / self.seconds, self.waited / self.seconds
        record = {
            "epoch": step * self.plan.recipe.batch_size / self.plan.samples,
            "loss": loss,
            "images_per_second": speed,
            "data_wait": wait,
            "skipped": float(len(self.skipped)),
            **record,
        }
        self.progress.numbers(loss, speed, wait, record.get("location_share"))
        for logger in self.loggers:
            logger.log(step, record)
        if self.fabric.is_global_zero:
            for text in self.watch.look(record):
                self.progress.warn(text)
                self._keep_warning(step, text)
        self.loss_sum.zero_()
        self.loss_count = self.images = 0
        self.seconds = self.waited = 0.0

    def settle(self, step: int) -> None:
        """Share with the other ranks what each alone knows: trouble, skipped images, and places in a stream."""
        for trouble in filter(None, gather(self.fabric, self.trouble)):
            self.close()
            raise UserError(trouble)
        self.skipped.settle(step)
        for places in gather(self.fabric, self.places):
            for consumer, place in places.items():  # the others may know an older one of it
                self.places[consumer] = max(place, self.places.get(consumer, place))

    def refuse_nonfinite(self) -> None:
        """Stop before a broken model is logged or saved."""
        step = max(gather(self.fabric, int(self.nonfinite_step)))
        if step < 0:
            return
        self.close()
        stopped = f"The loss of step {step} is not a number, so training stopped."
        remedy = (
            "Try a lower optimizer.lr, a longer warm-up, optimizer.clip_grad 1.0, or precision 32-true, in a new run."
        )
        if self.fabric.is_global_zero:
            self._keep_warning(step, f"{stopped} {remedy}")
        raise UserError(
            f"{stopped} The last checkpoint, in {self.folder.checkpoints}, is from before and whole. {remedy}"
        )

    def _keep_warning(self, step: int, text: str) -> None:
        with self.folder.warnings.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "text": text}) + "\n")

    def state(self) -> dict[str, Any]:
        """What a resumed run must know to write the next line as if nothing had happened."""
        return {
            "loss_sum": float(self.loss_sum),
            "loss_count": self.loss_count,
            "best": self.best,
            "places": self.places,
        }

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()
