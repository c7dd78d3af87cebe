"""The runs of a study: an ordinary, resumable run folder for each arm and seed; equal arms share one.

Runs of one seed are paired: they start from the same weights and see the same images in the same order through the
same masks, because these depend on the seed and not on what the arms vary.
"""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest
from flexpredict.data.sources.streams import identity
from flexpredict.runs.checkpoint import last_checkpoint, read_state
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.runs.run_record import flat
from flexpredict.settings.augmentation import Augmentation
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import FREE_ON_RESUME, Recipe
from flexpredict.studies.ablations.measuring import Measuring, measured, undrawn_scenes
from flexpredict.studies.ablations.processes import Baseline, Data, Task, TaskRun
from flexpredict.studies.ablations.study import Arm
from flexpredict.training.plan import Plan, make_plan, plain_values
from flexpredict.training.recipe_parser import make_recipe

_WHOLE: dict[str, type] = {"positions": Positions, "augmentation": Augmentation}
_LONGEST_NAME = 180  # of a folder; file systems allow 255 bytes


@dataclass(frozen=True)
class TestImages:
    """Images that encoders are measured on. data: the name by which a process opens them."""

    data: Data
    source: ImageSource


@dataclass(frozen=True)
class StudyRun:
    """One arm with one seed: its plan, and how it is measured."""

    folder: Path  # NAME-seed=N, a run folder
    plan: Plan
    train: ImageSource  # may be undrawn scenes
    test: TestImages | None = None  # None if the log has all numbers
    how: Measuring = field(default_factory=Measuring)
    baseline: Baseline | None = None  # measured instead of a trained encoder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def arm(self) -> str:
        """The folder's name without the seed."""
        return self.name.rpartition("-seed=")[0]

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    @property
    def begun(self) -> bool:
        return RunFolder(self.folder).config.is_file()

    @property
    def steps(self) -> int:
        return 0 if self.baseline else self.plan.steps

    @property
    def steps_left(self) -> int:
        return self.steps - steps_done(self.folder)

    @property
    def done(self) -> bool:
        return not self.steps_left and not self.unmeasured

    @property
    def unmeasured(self) -> bool:
        return self.test is not None and self.numbers() is None

    @cached_property
    def _asked(self) -> dict[str, Any]:
        assert self.test is not None
        return self.how.described(self.train, self.test.source)

    def numbers(self) -> dict[str, float] | None:
        """The measured numbers; None if not measured yet."""
        return measured(self.folder, self._asked)

    def logged_step(self) -> int:
        records = read_records(RunFolder(self.folder).metrics)
        return int(records[-1]["step"]) if records else 0

    def warnings(self) -> list[str]:
        """The warnings of its training."""
        return [str(record["text"]) for record in read_records(RunFolder(self.folder).warnings)]

    def require_same(self) -> None:
        """Refuse a folder that holds another run."""
        if self.begun:
            folder = RunFolder(self.folder)
            # Read as a recipe, so that options newer than the run get their defaults.
            saved = make_recipe(folder.load_config())
            folder.refuse_changes(self.plan.describe(), FREE_ON_RESUME, plan_of(saved, self.train).describe())
            folder.refuse_other_data(identity(self.train))


def task_of(runs: list[StudyRun], logs: Path, nice: int = 0) -> Task:
    """Runs with the same images, for one process."""
    first = runs[0]
    assert first.recipe.data is not None
    return Task(
        log=logs / f"{first.name}.log",
        runs=tuple(TaskRun(str(run.folder), plain_values(run.plan.describe()), run.baseline) for run in runs),
        data=first.recipe.data,
        test=None if first.test is None else first.test.data,
        measuring=dataclasses.asdict(first.how),
        nice=nice,
    )


class Runs:
    """Makes the runs of arms. base: the recipe that all arms share; source: its images."""

    def __init__(
        self,
        base: Recipe,
        source: ImageSource,
        out: Path,
        test: TestImages | None = None,
        how: Measuring | None = None,
    ) -> None:
        self.base, self.source, self.out = base, source, out
        self.test, self.how = test, how or Measuring()
        self._described = plan_of(base, source).describe()

    def of(self, arm: Arm, seeds: Iterable[int]) -> list[StudyRun]:
        """One run for each seed. Refuses an arm that cannot be run.

        Folders are named after what the plan changes in that of the base, so equal arms of different studies share
        them.
        """
        recipe = changed(self.base, arm.fields)
        source = self.source if recipe.data == self.base.data else undrawn_scenes(str(recipe.data))
        plan = plan_of(recipe, source)
        base, own = (dict(flat(described)) for described in (self._described, plan.describe()))
        if own["positions.noise_to_signal"] is not None:
            own["positions.noise_std"] = None  # follows from noise_to_signal
        different = [
            key
            for key in sorted(own)
            if own[key] != base.get(key) and key != "seed" and not (key.startswith("positions.") and own[key] is None)
        ]
        name = "-".join(f"{key}={own[key]}" for key in different) or "as-given"
        name = re.sub(r"[^\w.=,-]+", "_", name)
        if len(name) > _LONGEST_NAME:
            name = f"{name[:_LONGEST_NAME]}-{digest([name])[:8]}"
        test = self.test if arm.test is None else TestImages(arm.test, undrawn_scenes(arm.test))
        runs = []
        for seed in seeds:
            own_plan = dataclasses.replace(plan, recipe=dataclasses.replace(plan.recipe, seed=seed))
            runs.append(StudyRun(self.out / "runs" / f"{name}-seed={seed}", own_plan, source, test, self.how))
        return runs


def steps_done(folder: Path) -> int:
    """Steps of a run up to its last checkpoint."""
    checkpoint = last_checkpoint(RunFolder(folder).checkpoints)
    return 0 if checkpoint is None else int(read_state(checkpoint)["step"])


def plan_of(recipe: Recipe, source: ImageSource) -> Plan:
    """The plan of a run on this machine."""
    return make_plan(recipe, source, *hardware(recipe))


def changed(recipe: Recipe, fields: dict[str, Any]) -> Recipe:
    """The recipe with the fields of an arm."""
    changes: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(value, dict):
            changes[name] = value
        elif name in _WHOLE:
            changes[name] = _WHOLE[name](**value)
        elif isinstance(given := getattr(recipe, name), dict):
            changes[name] = {**given, **value}
        else:
            changes[name] = dataclasses.replace(given, **value)
    return dataclasses.replace(recipe, **changes)


def hardware(recipe: Recipe) -> tuple[torch.device, int]:
    """The kind and number of devices that a run will use, without starting anything."""
    device = Fabric(accelerator=recipe.accelerator, devices=1).device
    here = torch.cuda.device_count() if device.type == "cuda" else 1
    return device, (here if recipe.devices == "auto" else int(recipe.devices)) * recipe.num_nodes
