"""The training loop, top to bottom."""

import math
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from flexpredict.data.loader import Batch
from flexpredict.data.pixels import normalize
from flexpredict.data.sources.opening import ImageSource, ImageStream
from flexpredict.errors import UserError
from flexpredict.masking import Masks, sample_masks
from flexpredict.methods.method import Method, Prediction
from flexpredict.model.encoder import Encoder
from flexpredict.randomness import sample_keys, stream_key
from flexpredict.runs.checkpoint import Keep, load_checkpoint, save_checkpoint
from flexpredict.runs.encoder_file import EncoderSpec, Trained, save_encoder
from flexpredict.runs.metrics import Record
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.batches import RankBatches
from flexpredict.training.checkpoint_timer import CheckpointTimer
from flexpredict.training.divergence import REMEDY, LossGuard, gradient_norm
from flexpredict.training.health import feature_health, location_health, position_health
from flexpredict.training.optimizer import build_optimizers, set_rates
from flexpredict.training.plan import Plan
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.run_log import RunLog
from flexpredict.training.schedules import linear, noise_share
from flexpredict.training.sharding import whole_weights
from flexpredict.training.signals import stop_on_signal

Probe = Callable[[Encoder], Record]

_STEPS_BETWEEN_TALKS = 10  # of ranks on accelerators, which wait for each other when they talk


@dataclass
class Outcome:
    """How a run ended: after `steps` steps, finished, or interrupted by a signal."""

    steps: int
    finished: bool
    signal: int | None = None


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
    model.to(fabric.device)
    if recipe.compile:
        for network in model.compiled_parts():
            network.compile(dynamic=True)
    stochastic = model.masked_tokens.stochastic
    noise_std = stochastic.noise_std  # at the start
    wrapped = fabric.setup_module(model)
    optimizers = build_optimizers(settings, model)
    wrapped_optimizers = _as_list(fabric.setup_optimizers(*optimizers))

    state = load_checkpoint(folder.checkpoints, model, optimizers, progress.warn) or {"step": 0}
    log = RunLog(fabric, plan, folder, progress, state)
    fabric.barrier()  # the first rank has dropped what files say of later steps; now all may read them
    guard = LossGuard(fabric, state)
    batches = RankBatches(fabric, plan, source, folder, state)
    timer = CheckpointTimer()
    best: float = state.get("best", 0.0)  # accuracy of the probe so far
    step: int = state["step"]

    def save(done: int, keep: Keep) -> None:
        saved = {**log.state(), **guard.state(), **batches.state(), "best": best}
        with timer.writing():
            save_checkpoint(folder.checkpoints, done, model, optimizers, saved, keep, fabric.is_global_zero)
            encoder, role = model.saved_encoder
            save_encoder(folder.encoder, encoder, spec, role, Trained(done, plan.steps), fabric.is_global_zero)
            if fabric.is_global_zero:
                at_checkpoint()
            fabric.barrier()

    if step == 0 and recipe.on_nan == "rollback":
        save(0, Keep(recipe.keep_last))  # something to go back to

    with stop_on_signal(progress.stopping) as stop, batches.deaths_explained(), closing(log):
        while step < plan.steps:
            started = time.perf_counter()
            batch = next(batches)

            # Published schedules, each a function of the step.
            lr, weight_decay = plan.learning_rate(step), plan.weight_decay(step)
            momentum = linear(step, plan.steps, settings.ema_momentum, settings.final_ema_momentum)
            noise = recipe.positions
            stochastic.noise_std = noise_std * noise_share(noise.schedule, step, plan.steps, noise.final_level)
            set_rates(optimizers, plan.rate(step), weight_decay)

            images = normalize(batch.images.to(fabric.device, non_blocking=True))
            masks, keys = _masks_and_noise(fabric, plan, model, batch, step)
            # Masks and noise have keys of their own; this is for models with dropout.
            torch.manual_seed(stream_key(recipe.seed, "torch", step, fabric.global_rank))
            loss = torch.zeros((), device=fabric.device)
            part = len(images) // recipe.accumulate
            for start in range(0, len(images), part):
                now = slice(start, start + part)
                with fabric.no_backward_sync(wrapped, enabled=start + part < len(images)):
                    prediction: Prediction = wrapped(images[now], masks.context[now], masks.targets[now], keys[now])
                    fabric.backward(prediction.loss / recipe.accumulate)
                loss += prediction.loss.detach() / recipe.accumulate

            done = step + 1
            due = plan.log_due(done)
            record: Record = {"lr": lr, "weight_decay": weight_decay}
            left_out = guard.leaves_out(done, loss, model)
            if left_out:
                log.warn(done, f"The loss of step {done} is {float(loss):.3g}: its batch was left out.")
            else:
                if settings.clip_grad is not None:
                    fabric.clip_gradients(
                        wrapped, wrapped_optimizers[0], max_norm=settings.clip_grad, error_if_nonfinite=False
                    )
                if due:
                    record["grad_norm"] = gradient_norm(model)
                for optimizer in wrapped_optimizers:
                    optimizer.step()
                record |= model.after_step(momentum)
                guard.look(done, loss)
                log.add(loss, len(images), batches.waited, time.perf_counter() - started)
            for optimizer in wrapped_optimizers:
                optimizer.zero_grad()

            stopping, saving = _agreed(fabric, done, due, stop.requested, timer.due() and not recipe.checkpoint_every)
            saving = stopping or saving or plan.checkpoint_due(done)
            bad = None
            if due or saving:
                batches.settle(done)
                bad = guard.bad_step(model.parameters() if saving else ())
            if bad is not None:
                state = _back_to_checkpoint(plan, folder, bad, done, model, optimizers, log, progress)
                log.rewind(state)
                fabric.barrier()
                guard.rewind(state)
                guard.be_careful(until=done)
                batches.rewind(state)
                best, step = state.get("best", 0.0), state["step"]
                continue

            is_best = False
            if due:
                with whole_weights(model):
                    record |= position_health(model.masked_tokens, stream_key(recipe.seed, "location blur", step))
                    if not left_out:
                        record |= _prediction_health(prediction, recipe.masking.contexts_per_image)
                    if probe is not None and plan.probe_due(done):
                        record |= probe(model.saved_encoder[0])
                guard.expect(log.write(done, record, len(batches.skipped)))
                # Small runs can peak and decline, and the loss does not tell: the best encoder is kept as well.
                probed = record.get("linear_accuracy", record.get("knn_accuracy", 0.0))
                if is_best := probed > best:
                    best = probed
                    encoder, role = model.saved_encoder
                    save_encoder(folder.best_encoder, encoder, spec, role, Trained(done), fabric.is_global_zero)
            if saving or (is_best and recipe.keep_best):
                save(done, Keep(recipe.keep_last, this=plan.keep_due(done), best=is_best and recipe.keep_best))
            step = done
            progress.step(done)
            if stopping:
                break
    interrupted = (stop.number or signal.SIGTERM) if step < plan.steps else None
    return Outcome(step, finished=step == plan.steps, signal=interrupted)


def _masks_and_noise(fabric: Fabric, plan: Plan, model: Method, batch: Batch, step: int) -> tuple[Masks, Tensor]:
    """Masks, and keys of the noise, of this rank's rows of the global batch."""
    recipe, local = plan.recipe, plan.recipe.batch_size // fabric.world_size
    rows = torch.arange(fabric.global_rank * local, (fabric.global_rank + 1) * local)
    grid = model.mask_grid(batch.images)
    masks = sample_masks(recipe.masking, grid, stream_key(recipe.seed, "masks", step), recipe.batch_size)
    contexts = recipe.masking.contexts_per_image
    streams = rows[:, None] * contexts + torch.arange(contexts)
    keys = sample_keys(stream_key(recipe.seed, "noise", step), streams)
    return masks.rows(int(rows[0]), int(rows[-1]) + 1).to(fabric.device), keys.to(fabric.device)


def _prediction_health(prediction: Prediction, contexts: int) -> Record:
    """Numbers that tell whether it is learning."""
    penalty = {} if prediction.penalty is None else {"l1_penalty": float(prediction.penalty)}
    return {**feature_health(prediction.features), **location_health(prediction, contexts), **penalty}


def _agreed(fabric: Fabric, done: int, due: bool, *wishes: bool) -> tuple[bool, ...]:
    """What any rank wishes, on all of them: they stop and save together."""
    if fabric.world_size == 1:
        return wishes
    if fabric.device.type != "cpu" and not due and done % _STEPS_BETWEEN_TALKS:
        return tuple(False for _ in wishes)
    total = fabric.all_reduce(torch.tensor([float(wish) for wish in wishes], device=fabric.device), reduce_op="sum")
    assert isinstance(total, Tensor)
    return tuple(count > 0 for count in total.tolist())


def _back_to_checkpoint(
    plan: Plan,
    folder: RunFolder,
    bad: tuple[int, float],
    done: int,
    model: Method,
    optimizers: list[torch.optim.Optimizer],
    log: RunLog,
    progress: TrainingProgress,
) -> dict[str, Any]:
    """Undo what a bad step has done, if that is wanted; else stop before a broken model is logged or saved."""
    step, loss = bad
    what = (
        f"The weights are not numbers after step {done}"
        if step < 0
        else f"The loss of step {step} is not a number"
        if math.isnan(loss)
        else f"The loss of step {step} exploded to {loss:.3g}"
    )
    if plan.recipe.on_nan == "stop":
        log.keep_warning(done, f"{what}, so training stopped. {REMEDY}")
        before = f"The last checkpoint, in {folder.checkpoints}, is from before and whole. "
        raise UserError(
            f"{what}, so training stopped. {before * any(folder.checkpoints.glob('step-*'))}{REMEDY} Or resume it "
            "with on_nan=rollback, which leaves out the batch that did it."
        )
    state = load_checkpoint(folder.checkpoints, model, optimizers, progress.warn)
    assert state is not None  # one is written before the first step
    progress.warn(f"{what}: the run goes back to step {state['step']} and leaves out that batch.")
    return state


def _as_list(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]
