"""The runs of a study: an ordinary, resumable run folder for each arm and seed; arms that are the same share it.

Runs of one seed are paired: they start from the same weights and see the same images in the same order through the
same masks, because each of these is a function of the seed and of nothing that is varied.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from flexpredict.data.sources.identity import identity
from flexpredict.data.sources.opening import ImageSource, ImageStream
from flexpredict.errors import UserError
from flexpredict.runs.checkpoint import last_checkpoint, read_state
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import FREE_ON_RESUME, Recipe
from flexpredict.studies.ablations.studies import Arm, Study
from flexpredict.training.plan import Plan, default_precision, make_plan
from flexpredict.training.recipe_parser import make_recipe, merge


@dataclass(frozen=True)
class ArmRun:
    """One arm with one seed."""

    folder: Path
    values: dict[str, Any]  # of the recipe
    seed: int

    def recipe(self) -> Recipe:
        recipe = make_recipe(self.values)
        return dataclasses.replace(recipe, precision=recipe.precision or default_precision(recipe.accelerator))

    @property
    def begun(self) -> bool:
        return RunFolder(self.folder).config.is_file()

    def steps_done(self) -> int:
        """By its last checkpoint."""
        checkpoint = last_checkpoint(RunFolder(self.folder).checkpoints)
        return 0 if checkpoint is None else int(read_state(checkpoint)["step"])


def arm_run(arm: Arm, seed: int, base: dict[str, Any], out: Path) -> ArmRun:
    """base: what all arms share. The folder's name says what differs, so arms of several studies share their runs."""
    values = {**merge(base, arm.fields), "positions": arm.fields["positions"], "seed": seed}
    name = "-".join(f"{key}={value}" for key, value in flat(arm.fields))
    return ArmRun(out / "runs" / f"{name}-seed={seed}", values, seed)


def planned(studies: Iterable[Study], seeds: Iterable[int], base: dict[str, Any], out: Path) -> list[ArmRun]:
    """Every run that the studies need, once. Seed by seed, so that one that is stopped has whole pairs."""
    arms = [arm for study in studies for arm in study.arms]
    runs = [arm_run(arm, seed, base, out) for seed in seeds for arm in arms]
    return list({run.folder: run for run in runs}.values())


def plan_of(run: ArmRun, source: ImageSource | ImageStream) -> Plan:
    """What the run will do on this machine; refuses an arm that cannot be carried out."""
    recipe = run.recipe()
    try:
        return make_plan(recipe, source, *_hardware(recipe))
    except UserError as error:
        raise UserError(f"The arm {run.folder.name} cannot be run: {error}") from error


def steps_left(run: ArmRun, source: ImageSource | ImageStream) -> int:
    """Refuses a folder that holds another run than this: an answer from there would be to another question."""
    plan = plan_of(run, source)
    folder = RunFolder(run.folder)
    if run.begun:
        # Read as a recipe, so that options younger than the run have the defaults that it was made with.
        saved = make_recipe(folder.load_config())
        folder.refuse_changes(plan.describe(), FREE_ON_RESUME, make_plan(saved, source, *_hardware(saved)).describe())
        folder.refuse_other_data(identity(source))
    return max(0, plan.steps - run.steps_done())


def flat(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields without the names of the groups they are in."""
    for key, value in sorted(fields.items()):
        if isinstance(value, dict):
            yield from flat(value)
        else:
            yield key, value


def _hardware(recipe: Recipe) -> tuple[torch.device, int]:
    """The kind of device that the run will use, and how many of them, without starting anything."""
    device = Fabric(accelerator=recipe.accelerator, devices=1).device
    here = torch.cuda.device_count() if device.type == "cuda" else 1
    return device, (here if recipe.devices == "auto" else int(recipe.devices)) * recipe.num_nodes
