"""The training loop, top to bottom."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from flexpredict.data.loader import Batch, Batches, training_batches
from flexpredict.data.pixels import normalize
from flexpredict.data.sources.opening import ImageSource, ImageStream, is_stream
from flexpredict.data.stream_loader import starting_places, stream_batches
from flexpredict.errors import UserError
from flexpredict.masking import sample_masks
from flexpredict.methods.method import Method, Prediction
from flexpredict.model.encoder import Encoder
from flexpredict.randomness import sample_keys, stream_key
from flexpredict.runs.checkpoint import load_checkpoint, save_checkpoint
from flexpredict.runs.encoder_file import EncoderSpec, Trained, save_encoder
from flexpredict.runs.metrics import Record
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.health import feature_health, location_health, position_health
from flexpredict.training.journal import Journal
from flexpredict.training.optimizer import build_optimizers, set_rates
from flexpredict.training.plan import Plan
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.schedules import linear, noise_share
from flexpredict.training.signals import stop_on_signal

Probe = Callable[[Encoder], Record]


@dataclass
class Outcome:
    """How a run ended: after `steps` steps, finished or interrupted by a signal."""

    steps: int
    finished: bool


def train(
    fabric: Fabric,
    plan: Plan,
    source: ImageSource | ImageStream,
    model: Method,
    spec: EncoderSpec,
    folder: RunFolder,
    progress: TrainingProgress,
    probe: Probe | None = None,
    at_checkpoint: Callable[[], object] = lambda: None,
) -> Outcome:
    """Train `model` from the newest checkpoint in `folder` (or from the start) to the end of the plan.

    at_checkpoint: what the first rank does besides, when it has written one.
    """
    recipe, settings = plan.recipe, plan.recipe.optimizer
    model.to(fabric.device)  # before the optimizers load their state, which goes where the parameters are
    optimizers = build_optimizers(settings, model)
    state = load_checkpoint(folder.checkpoints, model, optimizers) or {"step": 0}
    first_step: int = state["step"]
    if recipe.compile:
        for network in model.compiled_parts():
            network.compile(dynamic=True)
    wrapped, *wrapped_optimizers = fabric.setup(model, *optimizers)
    journal = Journal.open(fabric, plan, folder, progress, state)
    stochastic = model.masked_tokens.stochastic
    noise_std = stochastic.noise_std  # at the start
    local = plan.recipe.batch_size // fabric.world_size
    part = local // recipe.accumulate
    batches = _batches(fabric, plan, source, first_step, journal)

    batch: Batch | None = None

    with stop_on_signal() as stop, batches.deaths_explained():
        for step in range(first_step, plan.steps):
            started = time.perf_counter()
            batch = _next_batch(batches, journal, last=batch)
            waited = time.perf_counter() - started

            # Published schedules, each a function of the step.
            lr, weight_decay = plan.learning_rate(step), plan.weight_decay(step)
            momentum = linear(step, plan.steps, settings.ema_momentum, settings.final_ema_momentum)
            noise = recipe.positions
            stochastic.noise_std = noise_std * noise_share(noise.schedule, step, plan.steps, noise.final_level)
            set_rates(optimizers, plan.rate(step), weight_decay)

            # Masks and noise of this rank's rows of the global batch.
            rows = torch.arange(fabric.global_rank * local, (fabric.global_rank + 1) * local)
            contexts = recipe.masking.contexts_per_image
            grid = model.mask_grid(batch.images)
            masks = sample_masks(recipe.masking, grid, stream_key(recipe.seed, "masks", step), plan.recipe.batch_size)
            masks = masks.rows(int(rows[0]), int(rows[-1]) + 1).to(fabric.device)
            streams = rows[:, None] * contexts + torch.arange(contexts)
            keys = sample_keys(stream_key(recipe.seed, "noise", step), streams).to(fabric.device)
            images = normalize(batch.images.to(fabric.device, non_blocking=True))

            # Masks and noise have keys of their own; this is for models with dropout.
            torch.manual_seed(stream_key(recipe.seed, "torch", step, fabric.global_rank))
            loss = torch.zeros((), device=fabric.device)
            for start in range(0, local, part):
                now = slice(start, start + part)
                with fabric.no_backward_sync(wrapped, enabled=start + part < local):
                    prediction: Prediction = wrapped(images[now], masks.context[now], masks.targets[now], keys[now])
                    fabric.backward(prediction.loss / recipe.accumulate)
                loss += prediction.loss.detach() / recipe.accumulate
            if settings.clip_grad is not None:
                fabric.clip_gradients(
                    wrapped, wrapped_optimizers[0], max_norm=settings.clip_grad, error_if_nonfinite=False
                )
            due = journal.due(step + 1)
            gradient_norm = _gradient_norm(model) if due else None
            for optimizer in wrapped_optimizers:
                optimizer.step()
                optimizer.zero_grad()
            done = model.after_step(momentum)

            journal.step(step + 1, loss, batch, waited, time.perf_counter() - started)
            if due:
                record = {
                    "lr": lr,
                    "weight_decay": weight_decay,
                    **done,
                    "grad_norm": float(gradient_norm or 0.0),
                    **feature_health(prediction.features),
                    **location_health(prediction, contexts),
                    **position_health(model.masked_tokens, stream_key(recipe.seed, "location blur", step)),
                }
                if prediction.penalty is not None:
                    record["l1_penalty"] = float(prediction.penalty)
                if probe is not None and plan.probe_due(step + 1):
                    record |= probe(model.saved_encoder[0])
                journal.write(step + 1, record)
                # Small runs can peak and decline, and the loss does not tell: the best encoder is kept as well.
                probed = record.get("linear_accuracy", record.get("knn_accuracy", 0.0))
                if probed > journal.best:
                    journal.best = probed
                    if fabric.is_global_zero:
                        encoder, name = model.saved_encoder
                        save_encoder(folder.best_encoder, encoder, spec, name, Trained(step + 1))
            stopping = stop.requested if fabric.world_size == 1 else due and _any_rank(fabric, stop.requested)
            if stopping or plan.checkpoint_due(step + 1):
                journal.settle(step + 1)
                journal.refuse_nonfinite()
                if fabric.is_global_zero:
                    keep = plan.keep_due(step + 1)
                    save_checkpoint(folder.checkpoints, step + 1, model, optimizers, journal.state(), keep)
                    encoder, name = model.saved_encoder
                    save_encoder(folder.encoder, encoder, spec, name, Trained(step + 1, plan.steps))
                    at_checkpoint()
                fabric.barrier()
            progress.step(step + 1)
            if stopping:
                journal.close()
                return Outcome(step + 1, finished=step + 1 == plan.steps)
    journal.close()
    return Outcome(plan.steps, finished=True)


def _batches(
    fabric: Fabric, plan: Plan, source: ImageSource | ImageStream, first_step: int, journal: Journal
) -> Batches:
    how: dict[str, Any] = {
        "seed": plan.recipe.seed,
        "batch_size": plan.recipe.batch_size,
        "first_step": first_step,
        "last_step": plan.steps,
        "rank": fabric.global_rank,
        "world_size": fabric.world_size,
        "workers": plan.recipe.workers,
    }
    if is_stream(source):
        # Of all consumers, and of no others: a checkpoint may come before each of them has made a batch.
        journal.places = starting_places(journal.places, fabric.world_size * max(1, plan.recipe.workers))
        return stream_batches(source, plan.recipe.augmentation, plan.image_sizes, **how, places=journal.places)
    if first_step == 0:
        journal.skipped.add(source.problems)
    return training_batches(source, plan.recipe.augmentation, plan.image_sizes, **how)


def _next_batch(batches: Batches, journal: Journal, last: Batch | None) -> Batch:
    """If one of several ranks cannot go on, it does as if it could until all meet: else they would wait for it."""
    try:
        if not journal.trouble:
            return next(batches)
    except UserError as error:
        if journal.fabric.world_size == 1:
            raise
        journal.trouble = str(error)
    if last is not None:
        return replace(last, skipped=[], place=None)
    plan = journal.plan
    share = plan.recipe.batch_size // journal.fabric.world_size
    return Batch(torch.zeros(share, 3, *plan.image_size, dtype=torch.uint8), torch.zeros(share, dtype=torch.int64))


def _any_rank(fabric: Fabric, flag: bool) -> bool:
    total = fabric.all_reduce(torch.tensor(float(flag), device=fabric.device), reduce_op="sum")
    return isinstance(total, Tensor) and bool(total > 0)


def _gradient_norm(model: nn.Module) -> Tensor:
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)
