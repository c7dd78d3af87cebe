"""A rehearsal: some steps of the training loop with a copy of the model, to learn what they cost on this machine.

It leaves no trace. The copy and its folder are deleted, and all randomness in the run that follows is a function of
its seed, so the run is the same as without a rehearsal.
"""

import copy
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.sources.opening import ImageSource, ImageStream
from flexpredict.methods.method import Method
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.engine import gather, on_first_rank
from flexpredict.training.loop import Probe, Training
from flexpredict.training.plan import Plan
from flexpredict.training.progress import TrainingProgress

_FEWEST_STEPS = 4
_MOST_WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Costs:
    """Seconds that the parts of a run take.

    Args:
        start: once, until steps reach their usual pace: readers start, kernels are compiled.
        step: each step, with its images and its share of the log.
        checkpoint: each checkpoint.
        probe: each probe of the encoder, if there are any.
        data_wait: share of a step that waits for images.
    """

    start: float
    step: float
    checkpoint: float
    probe: float
    data_wait: float


@dataclass(frozen=True)
class Rehearsal:
    """A planned run, its data and its model.

    Args:
        probe: the run's probe of the encoder, if it has one.
        folder: temporary; on the disk of the run, whose speed counts.
    """

    fabric: Fabric
    plan: Plan
    source: ImageSource | ImageStream
    model: Method
    probe: Probe | None
    folder: Path

    def measure(self, seconds: float) -> Costs | None:
        """Rehearse for about this many seconds, or for a few steps if they take longer.

        Returns what the first rank measured, on all ranks; None if someone stopped it.
        """
        costs = self._take(_FEWEST_STEPS)
        if costs is None or _FEWEST_STEPS * costs.step >= seconds:
            return costs
        return self._take(_FEWEST_STEPS + int(seconds / costs.step))

    def _take(self, steps: int) -> Costs | None:
        recipe = replace(
            self.plan.recipe,
            checkpoint_every=steps,  # one, at the end
            keep_every=None,
            probe_every=None,
            loggers=[],
            max_skipped=1.0,  # broken images are left to the run, which lists and refuses them
        )
        plan = replace(self.plan, recipe=recipe, steps=steps)
        model, folder = copy.deepcopy(self.model), RunFolder(self.folder)
        clock = _Clock(self.fabric.device, steps)
        try:
            on_first_rank(self.fabric, lambda: _make(folder, plan))
            if not Training(self.fabric, plan, self.source, model, folder, clock).run().finished:
                return None
            started = time.perf_counter()
            if self.probe is not None:
                self.probe(model.saved_encoder[0])
            return gather(self.fabric, clock.costs(probe=time.perf_counter() - started))[0]
        finally:
            if self.fabric.is_global_zero:
                shutil.rmtree(self.folder, ignore_errors=True)
            if recipe.compile:
                torch.compiler.reset()  # the run compiles for itself, in the same way as without a rehearsal


def _make(folder: RunFolder, plan: Plan) -> None:
    shutil.rmtree(folder.path, ignore_errors=True)  # of a rehearsal that was killed
    folder.checkpoints.mkdir(parents=True)
    folder.save_config(plan.describe())


class _Clock(TrainingProgress):
    """Prints nothing, and records when each step ends."""

    def __init__(self, device: torch.device, steps: int) -> None:
        super().__init__(Console(quiet=True), steps)
        self._device = device
        self._warm_up = min(_MOST_WARM_UP_STEPS, steps // 3)
        self._times = [time.perf_counter()]
        self._data_wait = 0.0

    def numbers(self, record: Mapping[str, float], probed: str = "") -> None:
        self._data_wait = record["data_wait"]

    def step(self, step: int) -> None:
        # A GPU is synchronized only where the measured steps begin and end, so that steps overlap as usual.
        if self._device.type == "cuda" and step in (self._warm_up, self.steps - 1):
            torch.cuda.synchronize(self._device)
        self._times.append(time.perf_counter())

    def costs(self, probe: float) -> Costs:
        """Costs, with the mean time of the steps after the warm-up, not the median: a run takes the sum of them all.

        The last step is left out, because it writes the checkpoint.
        """
        first, last = self._warm_up, self.steps - 1
        step = (self._times[last] - self._times[first]) / (last - first)
        start = self._times[first] - self._times[0] - first * step
        checkpoint = self._times[-1] - self._times[last] - step
        return Costs(max(0.0, start), step, max(0.0, checkpoint), probe, self._data_wait)
