"""The training loop of fine-tuning."""

import json
import math
import time
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor

from flexpredict.data.loader import Batch, training_batches
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning.classifier import Classifier, classify
from flexpredict.evaluation.finetuning.plan import FinetunePlan
from flexpredict.evaluation.labeled_images import LabeledImages
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.runs.checkpoint import load_checkpoint, save_checkpoint
from flexpredict.runs.metrics import MetricsFile, Record, keep_until, read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.engine import gather
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.schedules import warmup_cosine
from flexpredict.training.signals import stop_on_signal


def train(
    fabric: Fabric,
    plan: FinetunePlan,
    model: Classifier,
    groups: list[dict[str, Any]],
    images: LabeledImages,
    held_out: LabeledImages | None,
    folder: RunFolder,
    progress: TrainingProgress,
) -> None:
    """Train from the newest checkpoint in `folder` (or from the start) to the end of the plan.

    A signal ends it early: everything is saved, then KeyboardInterrupt is raised. groups: parameters of the model,
    see `layered_groups`. The model is on its device and in evaluation mode, as drop_path and mixup draw their random
    numbers from keys.
    """
    optimizer = torch.optim.AdamW(groups, lr=plan.lr, betas=plan.betas, fused=True)
    state = load_checkpoint(folder.checkpoints, model, [optimizer], progress.warn) or {"step": 0}
    first_step: int = state["step"]
    wrapped, wrapped_optimizer = fabric.setup(model, optimizer)
    log = FinetuneLog(fabric, folder, progress, state)
    share = plan.batch_size // fabric.world_size
    rows = torch.arange(fabric.global_rank * share, (fabric.global_rank + 1) * share)  # of the global batch
    batches = training_batches(
        images.source,
        plan.augmentation,
        [plan.image_size],
        seed=plan.seed,
        batch_size=plan.batch_size,
        first_step=first_step,
        last_step=plan.steps,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        workers=plan.workers,
    )
    with stop_on_signal() as stop, batches.deaths_explained():
        for step in range(first_step, plan.steps):
            started = time.perf_counter()
            batch = next(batches)
            waited = time.perf_counter() - started

            lr = warmup_cosine(
                step, plan.steps, plan.warmup_steps, plan.start_lr * plan.lr, plan.lr, plan.final_lr * plan.lr
            )
            for group in optimizer.param_groups:
                group["lr"] = lr * group["scale"]
                group["weight_decay"] = plan.weight_decay if group["decays"] else 0.0

            pixels = batch.images.to(fabric.device, non_blocking=True)
            targets = images.labels[batch.indices].to(fabric.device)
            if plan.mixup:
                shares = own_shares(plan.seed, step, rows, plan.mixup).to(fabric.device)
                pixels, targets = mix_images(pixels, shares), mix_labels(targets, shares, len(images.classes))
            keys = sample_keys(stream_key(plan.seed, "drop path", step), rows).to(fabric.device)

            logits = wrapped(pixels, keys)
            loss = F.cross_entropy(logits, targets, label_smoothing=plan.label_smoothing)
            fabric.backward(loss)
            if plan.clip_grad is not None:
                fabric.clip_gradients(wrapped, wrapped_optimizer, max_norm=plan.clip_grad, error_if_nonfinite=False)
            wrapped_optimizer.step()
            wrapped_optimizer.zero_grad()

            done = step + 1
            log.step(loss.detach(), batch, waited, time.perf_counter() - started)
            measured = held_out is not None and plan.epoch_done(done)
            if measured or plan.log_due(done):
                record = {"epoch": done * plan.batch_size / plan.samples, "lr": lr}
                if held_out is not None and measured:
                    classified = classify(fabric, model, held_out, plan.image_size, share, plan.workers)
                    record["held_out_accuracy"] = 100 * float(classified.top1.double().mean())
                log.write(done, record)
            # All ranks must stop together. Asking each other takes time, so it is done only now and then.
            stopping = (
                stop.requested
                if fabric.world_size == 1
                else plan.log_due(done) and any(gather(fabric, stop.requested))
            )
            if stopping or plan.checkpoint_due(done):
                sums = log.state(done)
                save_checkpoint(folder.checkpoints, done, model, [optimizer], sums, write=fabric.is_global_zero)
                fabric.barrier()
            progress.step(done)
            if stopping and done < plan.steps:
                log.close()
                raise stop.interruption()
    log.close()


def own_shares(seed: int, step: int, rows: Tensor, alpha: float) -> Tensor:
    """The share that each image keeps of itself, drawn from Beta(alpha, alpha) for each pair: rows B -> B.

    Rows 2i and 2i + 1 of the global batch are a pair. Images come in random order, so this pair is as random as any
    other, and both are on the same rank.
    """
    return symmetric_beta(sample_keys(stream_key(seed, "mixup", step), rows // 2), alpha).float()


def symmetric_beta(keys: Tensor, alpha: float) -> Tensor:
    """One number of Beta(alpha, alpha), float64, for each key: B... -> B...

    Bailey's polar method makes T = √(ν (U^(-2/ν) - 1)) cos 2πV, of Student's distribution with ν degrees of freedom,
    and (1 + T / √(ν + T²)) / 2 is then Beta(ν/2, ν/2). Written with w = U^(2/ν), so that nothing overflows where
    alpha is small. Exact, and without rejection.
    """
    first, second = uniform(keys, 2).double().unbind(dim=-1)
    w = (1 - first) ** (1 / alpha)
    cosine = torch.cos(2 * math.pi * second)
    share = 0.5 + 0.5 * (1 - w).sqrt() * cosine / (w + (1 - w) * cosine**2).sqrt()
    return share.clamp_(0, 1)  # rounding reaches beyond where w vanishes


def mix_images(images: Tensor, shares: Tensor) -> Tensor:
    """B 3 H W uint8, B -> the same shape, still bytes: encoders normalize them."""
    own = images.float()
    return torch.lerp(_partners(own), own, shares[:, None, None, None]).round_().to(torch.uint8)


def mix_labels(labels: Tensor, shares: Tensor, classes: int) -> Tensor:
    """Labels B and shares B -> the share of each class in each image: B C."""
    own = F.one_hot(labels, classes).float()
    return torch.lerp(_partners(own), own, shares[:, None])


def _partners(rows: Tensor) -> Tensor:
    """Each row replaced by the other of its pair."""
    swapped: Tensor = rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
    return swapped


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
