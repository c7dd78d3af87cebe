"""The training loop of fine-tuning."""

import math
import time
from contextlib import closing
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor

from flexpredict.data.loader import training_batches
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning.classifier import Classifier, classify
from flexpredict.evaluation.finetuning.plan import FinetunePlan
from flexpredict.evaluation.labeled_images import LabeledImages
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.runs.checkpoint import load_checkpoint, save_checkpoint
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.divergence import LossGuard
from flexpredict.training.engine import gather
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.run_log import RunLog
from flexpredict.training.schedules import warmup_cosine
from flexpredict.training.signals import stop_on_signal
from flexpredict.training.skipped import SkippedImages


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
    log, guard = RunLog(fabric, folder, progress, state), LossGuard(fabric, {})
    fabric.barrier()  # the first rank has removed later steps from the files; now all may read them
    skipped = SkippedImages(fabric, folder.skipped)
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
    with stop_on_signal() as stop, batches.deaths_explained(), closing(log):
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
            log.add(loss.detach(), len(batch.images), waited, time.perf_counter() - started)
            guard.look(done, loss.detach())
            skipped.add(batch.skipped)
            # All ranks must stop together. Asking each other takes time, so it is done only now and then.
            due = plan.log_due(done)
            stopping = stop.requested if fabric.world_size == 1 else due and any(gather(fabric, stop.requested))
            saving, measured = stopping or plan.checkpoint_due(done), held_out is not None and plan.epoch_done(done)
            if due or saving or measured:
                _refuse_bad_loss(guard, folder, done)
                skipped.settle(done)
            if due or measured:
                record = {"epoch": done * plan.batch_size / plan.samples, "lr": lr}
                if held_out is not None and measured:
                    classified = classify(fabric, model, held_out, plan.image_size, share, plan.workers)
                    record["held_out_accuracy"] = 100 * float(classified.top1.double().mean())
                log.write(done, record, len(skipped))
            if saving:
                save_checkpoint(
                    folder.checkpoints, done, model, [optimizer], log.state(), write=fabric.is_global_zero
                )
                fabric.barrier()
            progress.step(done)
            if stopping and done < plan.steps:
                raise stop.interruption()


def _refuse_bad_loss(guard: LossGuard, folder: RunFolder, step: int) -> None:
    """Stop before a broken model is logged or saved."""
    if (bad := guard.bad_step(step)) is not None:
        raise UserError(
            f"The loss of step {bad.step} was NaN or infinite, so training stopped. The last checkpoint in "
            f"{folder.checkpoints} is from before. Start a new run with a lower lr, more warmup_epochs, "
            "clip_grad=1.0 or precision=32-true."
        )


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
    return share.clamp_(0, 1)  # rounding may leave this range where w vanishes


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
