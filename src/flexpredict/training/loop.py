"""The training loop, top to bottom."""

import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
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
from flexpredict.runs.encoder_file import Trained, save_encoder
from flexpredict.runs.metrics import PROBES, Record
from flexpredict.runs.run_folder import RunFolder
from flexpredict.runs.run_record import STOPPED
from flexpredict.training.batches import RankBatches
from flexpredict.training.checkpoint_timer import CheckpointTimer
from flexpredict.training.divergence import REMEDY, BadStep, LossGuard, clip_gradients, gradient_norm
from flexpredict.training.health import feature_health, location_health, position_health
from flexpredict.training.optimizer import build_optimizers, set_rates
from flexpredict.training.plan import Plan
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.run_log import RunLog
from flexpredict.training.schedules import ema_momentum, noise_share
from flexpredict.training.sharding import whole_weights
from flexpredict.training.signals import stop_on_signal

Probe = Callable[[Encoder], Record]

_STEPS_BETWEEN_TALKS = 10  # between ranks on accelerators, because talking makes them wait for each other


@dataclass
class Outcome:
    """How a run ended: after `steps` steps, finished, or interrupted by a signal."""

    steps: int
    finished: bool
    signal: int | None = None


class Training:
    """A run that continues from the newest checkpoint in its folder, or starts.

    Args:
        probe: measures the encoder now and then.
        at_checkpoint: called on the first rank after each checkpoint.
    """

    def __init__(
        self,
        fabric: Fabric,
        plan: Plan,
        source: ImageSource | ImageStream,
        model: Method,
        folder: RunFolder,
        progress: TrainingProgress,
        probe: Probe | None = None,
        at_checkpoint: Callable[[], object] = lambda: None,
    ) -> None:
        self._fabric, self._plan, self._model, self._folder = fabric, plan, model, folder
        self._progress, self._probe, self._at_checkpoint = progress, probe, at_checkpoint
        model.to(fabric.device)
        if plan.recipe.compile:
            for network in model.compiled_parts():
                network.compile(dynamic=True)
        self._noise_std = model.masked_tokens.stochastic.noise_std  # at the start
        self._wrapped = fabric.setup_module(model)
        self._optimizers = build_optimizers(plan.recipe.optimizer, model)
        self._wrapped_optimizers = _as_list(fabric.setup_optimizers(*self._optimizers))

        state = load_checkpoint(folder.checkpoints, model, self._optimizers, progress.warn) or {"step": 0}
        self._log = RunLog(fabric, folder, progress, state, plan.recipe.loggers)
        fabric.barrier()  # the first rank has removed later steps from the files; now all may read them
        self._guard = LossGuard(fabric, state)
        self._batches = RankBatches(fabric, plan, source, folder, state)
        self._timer = CheckpointTimer()
        self._best: float = state.get("best", 0.0)  # best accuracy of the probe so far
        self._step: int = state["step"]

    def run(self) -> Outcome:
        """Train to the end of the plan, or until a signal comes."""
        plan, recipe = self._plan, self._plan.recipe
        if self._step == 0 and recipe.on_nan == "rollback":
            self._save(Keep(recipe.keep_last))  # something to go back to
        with stop_on_signal(self._progress.stopping) as stop, self._batches.deaths_explained(), closing(self._log):
            while self._step < plan.steps:
                if self._step == 0 and self._probe is not None:
                    self._probe_before_training(self._probe)
                done = self._step + 1
                due = plan.log_due(done)
                prediction, record = self._take_step(due)
                time_to_save = self._timer.due() and not recipe.checkpoint_every
                stopping, saving = _agreed(self._fabric, done, due, stop.requested, time_to_save)
                saving = stopping or saving or plan.checkpoint_due(done)
                if due or saving:
                    self._batches.settle(done)
                    bad = self._guard.bad_step(done, self._model.parameters() if saving else ())
                    if bad is not None:
                        self._go_back(bad)
                        continue
                self._step = done
                is_best = due and self._write_log(prediction, record)
                if saving or (is_best and recipe.keep_best):
                    self._save(Keep(recipe.keep_last, this=plan.keep_due(done), best=is_best and recipe.keep_best))
                self._progress.step(done)
                if stopping:
                    break
        interrupted = (stop.number or signal.SIGTERM) if self._step < plan.steps else None
        return Outcome(self._step, finished=self._step == plan.steps, signal=interrupted)

    def _probe_before_training(self, probe: Probe) -> None:
        """Probe the encoder before the first step, as the baseline for all later probes."""
        with whole_weights(self._model):
            record = probe(self._model.saved_encoder[0])
        self._best = _accuracy(record)
        self._log.write(0, {"epoch": 0.0, **record}, skipped=0)

    def _take_step(self, due: bool) -> tuple[Prediction | None, Record]:
        """Update all weights by the next batch. Returns the prediction (None: batch left out) and values to log."""
        started = time.perf_counter()
        batch = next(self._batches)
        settings, step = self._plan.recipe.optimizer, self._step

        # Published schedules, each a function of the step.
        lr, weight_decay = self._plan.learning_rate(step), self._plan.weight_decay(step)
        momentum = ema_momentum(step, self._plan.steps, settings)
        noise = self._plan.recipe.positions
        share = noise_share(noise.schedule, step, self._plan.steps, noise.final_level)
        self._model.masked_tokens.stochastic.noise_std = self._noise_std * share
        set_rates(self._optimizers, self._plan.rate(step), weight_decay, self._plan.encoder_rate(step))
        epoch = (step + 1) * self._plan.recipe.batch_size / self._plan.samples
        record: Record = {"epoch": epoch, "lr": lr, "weight_decay": weight_decay}

        loss, prediction = self._forward_and_backward(batch)
        left_out = self._guard.leaves_out(step + 1, loss, self._model)
        if left_out:
            self._model.forget_pass()
            self._log.warn(step + 1, f"The loss of step {step + 1} is {float(loss):.3g}: its batch was left out.")
        else:
            if due or settings.clip_grad is not None:
                norm = gradient_norm(self._model)
                if settings.clip_grad is not None:
                    clip_gradients(self._model, settings.clip_grad, norm)
                if due:
                    record["grad_norm"] = float(norm)  # before clipping, or spikes would not be seen
            for optimizer in self._wrapped_optimizers:
                optimizer.step()
            record |= self._model.after_step(momentum)
            self._guard.look(step + 1, loss)
            self._log.add(loss, len(batch.images), self._batches.waited, time.perf_counter() - started)
        for optimizer in self._wrapped_optimizers:
            optimizer.zero_grad()
        return None if left_out else prediction, record

    def _forward_and_backward(self, batch: Batch) -> tuple[Tensor, Prediction]:
        """Gradients of a batch, in `accumulate` parts. Returns the loss and the last prediction."""
        fabric, recipe, step = self._fabric, self._plan.recipe, self._step
        images = normalize(batch.images.to(fabric.device, non_blocking=True))
        masks, keys = _masks_and_noise(fabric, self._plan, self._model, batch, step)
        # Masks and noise have keys of their own; this is for models with dropout.
        torch.manual_seed(stream_key(recipe.seed, "torch", step, fabric.global_rank))
        loss = torch.zeros((), device=fabric.device)
        part = len(images) // recipe.accumulate
        for start in range(0, len(images), part):
            now = slice(start, start + part)
            with fabric.no_backward_sync(self._wrapped, enabled=start + part < len(images)):
                prediction: Prediction = self._wrapped(images[now], masks.context[now], masks.targets[now], keys[now])
                fabric.backward(prediction.loss / recipe.accumulate)
            loss += prediction.loss.detach() / recipe.accumulate
        return loss, prediction

    def _write_log(self, prediction: Prediction | None, record: Record) -> bool:
        """Write a line of metrics, with the probe if it is due. Returns whether this encoder is the best so far."""
        plan, model, step = self._plan, self._model, self._step
        with whole_weights(model):
            record |= position_health(model.masked_tokens, stream_key(plan.recipe.seed, "location blur", step - 1))
            if prediction is not None:
                record |= _prediction_health(prediction, plan.recipe.masking.contexts_per_image)
            if self._probe is not None and plan.probe_due(step):
                record |= self._probe(model.saved_encoder[0])
        self._guard.expect(self._log.write(step, record, len(self._batches.skipped)))
        # Small runs can peak and decline without the loss showing it: the best encoder is kept as well.
        if _accuracy(record) <= self._best:
            return False
        self._best = _accuracy(record)
        self._save_encoder(self._folder.best_encoder, Trained(step))
        return True

    def _save(self, keep: Keep) -> None:
        """Write a checkpoint and the encoder, and call `at_checkpoint`."""
        state = {**self._log.state(), **self._guard.state(), **self._batches.state(), "best": self._best}
        first = self._fabric.is_global_zero
        with self._timer.writing():
            save_checkpoint(self._folder.checkpoints, self._step, self._model, self._optimizers, state, keep, first)
            self._save_encoder(self._folder.encoder, Trained(self._step, self._plan.steps))
            if first:
                self._at_checkpoint()
            self._fabric.barrier()

    def _save_encoder(self, path: Path, trained: Trained) -> None:
        encoder, role = self._model.saved_encoder
        save_encoder(path, encoder, self._plan.encoder, role, trained, self._fabric.is_global_zero)

    def _go_back(self, bad: BadStep) -> None:
        """Go back to before a bad step if on_nan=rollback; else stop before a broken model is logged or saved."""
        reached, checkpoints = self._step + 1, self._folder.checkpoints
        what = bad.description
        if self._plan.recipe.on_nan == "stop":
            self._log.keep_warning(reached, f"{what}, {STOPPED}. {REMEDY}")
            before = f"The last checkpoint, in {checkpoints}, is from before that and intact. "
            raise UserError(
                f"{what}, so training stopped. {before * any(checkpoints.glob('step-*'))}{REMEDY} Or resume it "
                "with on_nan=rollback, which leaves out the batch that caused it."
            )
        state = load_checkpoint(checkpoints, self._model, self._optimizers, self._progress.warn)
        assert state is not None  # one is written before the first step
        self._progress.warn(f"{what}: the run goes back to step {state['step']} and leaves out that batch.")
        self._log.rewind(state)
        self._fabric.barrier()
        self._guard.rewind(state)
        self._guard.be_careful(until=reached)
        self._batches.rewind(state)
        self._best, self._step = state.get("best", 0.0), state["step"]


def _masks_and_noise(fabric: Fabric, plan: Plan, model: Method, batch: Batch, step: int) -> tuple[Masks, Tensor]:
    """Masks and noise keys for this rank's rows of the global batch."""
    recipe, local = plan.recipe, plan.recipe.batch_size // fabric.world_size
    rows = torch.arange(fabric.global_rank * local, (fabric.global_rank + 1) * local)
    grid = model.mask_grid(batch.images)
    masks = sample_masks(recipe.masking, grid, stream_key(recipe.seed, "masks", step), recipe.batch_size)
    contexts = recipe.masking.contexts_per_image
    streams = rows[:, None] * contexts + torch.arange(contexts)
    keys = sample_keys(stream_key(recipe.seed, "noise", step), streams)
    return masks.rows(int(rows[0]), int(rows[-1]) + 1).to(fabric.device), keys.to(fabric.device)


def _accuracy(record: Record) -> float:
    """The accuracy by the first of `PROBES` in the record; 0 if there is none."""
    return next((record[name] for name in PROBES if name in record), 0.0)


def _prediction_health(prediction: Prediction, contexts: int) -> Record:
    """Numbers that show whether the model is learning."""
    penalty = {} if prediction.penalty is None else {"l1_penalty": float(prediction.penalty)}
    return {**feature_health(prediction.features), **location_health(prediction, contexts), **penalty}


def _agreed(fabric: Fabric, done: int, due: bool, *wishes: bool) -> tuple[bool, ...]:
    """For each wish, whether any rank has it: all ranks stop and save together."""
    if fabric.world_size == 1:
        return wishes
    if fabric.device.type != "cpu" and not due and done % _STEPS_BETWEEN_TALKS:
        return tuple(False for _ in wishes)
    total = fabric.all_reduce(torch.tensor([float(wish) for wish in wishes], device=fabric.device), reduce_op="sum")
    assert isinstance(total, Tensor)
    return tuple(count > 0 for count in total.tolist())


def _as_list(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]
