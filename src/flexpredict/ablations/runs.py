"""The runs of a study: an ordinary, resumable run folder for each arm and seed; arms that are the same share it.

Runs of one seed are paired: they start from the same weights and see the same images in the same order through the
same masks, because each of these is a function of the seed and of nothing that is varied.
"""

import dataclasses
import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from flexpredict import pretraining
from flexpredict.ablations.studies import Arm, Study
from flexpredict.cores import cores
from flexpredict.data.sources import ImageSource, ImageStream, open_images
from flexpredict.errors import UserError
from flexpredict.training.plan import make_plan
from flexpredict.training.recipe import Recipe
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.run_folder import RunFolder

_MEASURED_STEPS = 12
_SETTLING_STEPS = 4  # the first ones are slower and are not counted


@dataclass(frozen=True)
class ArmRun:
    """One arm with one seed."""

    folder: Path
    values: dict[str, Any]  # of the recipe
    seed: int

    def recipe(self) -> Recipe:
        return make_recipe(self.values)

    def steps_done(self) -> int:
        """By its last checkpoint."""
        state = self.folder / "checkpoints" / "last" / "state.json"
        return int(json.loads(state.read_text())["step"]) if state.is_file() else 0


def arm_run(arm: Arm, seed: int, base: dict[str, Any], out: Path) -> ArmRun:
    """base: what all arms share. The folder's name says what differs, so arms of several studies share their runs."""
    values = {**base, **arm.fields, "seed": seed}
    name = "-".join(f"{key}={value}" for key, value in flat(arm.fields))
    return ArmRun(out / "runs" / f"{name}-seed={seed}", values, seed)


def planned(studies: Iterable[Study], seeds: Iterable[int], base: dict[str, Any], out: Path) -> list[ArmRun]:
    """Every run that the studies need, once. Seed by seed, so that one that is stopped has whole pairs."""
    arms = [arm for study in studies for arm in study.arms]
    runs = [arm_run(arm, seed, base, out) for seed in seeds for arm in arms]
    return list({run.folder: run for run in runs}.values())


def check(runs: list[ArmRun], source: ImageSource | ImageStream) -> dict[Path, int]:
    """Steps of each run; refuses, before anything starts, an arm that cannot be carried out."""
    steps = {}
    for run in runs:
        try:
            steps[run.folder] = make_plan(run.recipe(), source, torch.device("cpu"), 1).steps
        except UserError as error:
            raise UserError(f"The arm {run.folder.name} cannot be run: {error}") from error
    return steps


def seconds_a_step(run: ArmRun, source: ImageSource | ImageStream) -> float:
    """Measured: a few steps of a real run, in a folder that is thrown away."""
    scratch = Path(tempfile.mkdtemp(prefix="flexpredict-"))
    try:
        recipe = run.recipe()
        plan = make_plan(recipe, source, torch.device("cpu"), 1)
        times: list[float] = []
        for count in (_SETTLING_STEPS, _MEASURED_STEPS):
            short = dataclasses.replace(recipe, epochs=count * plan.batch_size / plan.samples, probe_every=None)
            started = time.perf_counter()
            pretraining.run(short, scratch / str(count), source=source, console=Console(quiet=True))
            times.append(time.perf_counter() - started)
        # What every run costs once, such as its report, is in both and cancels out.
        return max(times[1] - times[0], 1e-9) / (_MEASURED_STEPS - _SETTLING_STEPS)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def carry_out(runs: list[ArmRun], source: ImageSource | ImageStream, jobs: int) -> Iterator[tuple[ArmRun, bool]]:
    """Each run as it ends, and whether it ran to its end (it does not when someone stops it)."""
    if jobs == 1:
        for run in runs:
            finished = _carry_out(run, source)
            yield run, finished
            if not finished:
                return
        return
    # New processes, not forks of one that has threads. Each opens the data once, for all its runs.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _share_cores, (jobs,)) as pool:
        waiting = {pool.submit(_carry_out_elsewhere, run): run for run in runs}
        try:
            for done in as_completed(waiting):
                finished = done.result()
                yield waiting[done], finished
                if not finished:
                    break
        finally:
            pool.shutdown(cancel_futures=True)


def _carry_out_elsewhere(run: ArmRun) -> bool:
    data = run.values["data"]
    return _carry_out(run, _opened(data if isinstance(data, str) else tuple(data)))


@lru_cache(maxsize=1)
def _opened(data: str | tuple[str, ...]) -> ImageSource | ImageStream:
    return open_images(data)


def _carry_out(run: ArmRun, source: ImageSource | ImageStream) -> bool:
    """Begin a run or go on with it; there is nothing to do for one that has ended."""
    resume = RunFolder(run.folder).config.is_file()
    quiet = Console(quiet=True)
    return pretraining.run(run.recipe(), run.folder, resume=resume, source=source, console=quiet).finished


def _share_cores(jobs: int) -> None:
    torch.set_num_threads(max(1, cores() // jobs))


def flat(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields without the names of the groups they are in."""
    for key, value in sorted(fields.items()):
        if isinstance(value, dict):
            yield from flat(value)
        else:
            yield key, value
