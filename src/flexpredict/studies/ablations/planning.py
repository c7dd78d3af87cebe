"""What a study comes to on these images and this machine: its arms that can be carried out, and their runs."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from flexpredict.data.sources.derived import Part, named_part
from flexpredict.data.sources.image_source import ArraySource, ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.evaluation.probing import check_probe
from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.measuring import Measuring, measured
from flexpredict.studies.ablations.runs import ArmRun, Runs, plan_of
from flexpredict.studies.ablations.studies import find_studies, names_of
from flexpredict.studies.ablations.study import Study

Data = str | list[str]


@dataclass(kw_only=True)
class Ablation(StudySettings):
    """What is asked, and the recipe that all arms share but for what they vary; its seed is the first one."""

    base: Recipe

    @property
    def folder(self) -> Path:
        """For runs, tables and figures."""
        return Path(self.out)

    @property
    def measuring(self) -> Measuring:
        return Measuring(tuple(self.labels), self.subsets, images=self.location_images)

    def check(self) -> None:
        """Refuse what makes no sense, whatever the images are."""
        names_of(self.study)
        if self.base.data is None:
            raise UserError("No data was named. Give `data` a folder of images, or 'scenes' for the built-in ones.")


@dataclass(frozen=True)
class Work:
    """A run, and how it is to be measured (None where its log tells all)."""

    run: ArmRun
    how: Measuring | None
    asked: dict[str, Any] | None

    @property
    def done(self) -> bool:
        return not self.run.steps_left and (self.asked is None or self.numbers() is not None)

    def numbers(self) -> dict[str, float] | None:
        return measured(self.run.folder, self.asked) if self.asked is not None else None


@dataclass(frozen=True)
class Agenda:
    """All that is to be done. test_data: names of the images in `test`; role: "validation" or "test"."""

    train: ImageSource
    test: ImageSource | None
    test_data: Data | None
    role: str
    studies: list[Study]
    runs: dict[tuple[str, str], list[ArmRun]]  # by names of study and arm, a run a seed
    work: dict[Path, Work]  # by folder; arms that come to the same run share it

    def of(self, study: Study, arm: str) -> list[Work]:
        return [self.work[run.folder] for run in self.runs[study.name, arm]]

    def seeds(self, study: Study) -> list[int]:
        return [run.recipe.seed for run in self.runs[study.name, study.arms[0].name]]


def make_agenda(asked: Ablation, console: Console) -> Agenda:
    """Opens the images. Refuses what cannot be done before anything is started."""
    asked.check()
    data, test_data, role = _data(asked)
    base = dataclasses.replace(asked.base, data=data)
    train = open_source(data)
    planned = plan_of(base, train).recipe
    studies = find_studies(asked, planned)
    if any("positions" in arm.fields for study in studies for arm in study.arms):
        _refuse_positions(base.positions)
    if studies[0].scene_tasks:
        test_data = studies[0].arms[0].test
    probes = any(study.probes for study in studies)
    test = open_source(test_data) if probes and test_data is not None else None
    if test is not None:
        check_probe(train, test, asked.measuring.probing())
    runs = Runs(base, train, asked.folder)
    possible: list[Study] = []
    by_arm: dict[tuple[str, str], list[ArmRun]] = {}
    work: dict[Path, Work] = {}
    for study in studies:
        seeds = range(base.seed, base.seed + (asked.seeds or study.seeds))
        found = _runs_of(study, runs, seeds, console, alone=len(studies) == 1)
        if not found:
            continue
        possible.append(dataclasses.replace(study, arms=tuple(arm for arm in study.arms if arm.name in found)))
        by_arm |= {(study.name, arm): own for arm, own in found.items()}
    for seed_place in range(max(map(len, by_arm.values()))):
        # Seed by seed, so that one that is stopped has whole pairs.
        for (name, _), own in by_arm.items():
            study = next(study for study in possible if study.name == name)
            if seed_place < len(own):
                _add(work, own[seed_place], study, runs, test, asked.measuring)
    return Agenda(train, test, test_data, role, possible, by_arm, work)


def _data(asked: Ablation) -> tuple[Data, Data | None, str]:
    """Names of the images to pre-train on and to measure on, and what the latter are."""
    data = asked.base.data
    assert data is not None
    if asked.study == "where":
        if asked.test is not None:
            raise UserError(f"test is {asked.test}, but the study where has test scenes of its own. Leave it out.")
        return data, None, "test"
    if asked.test is not None:
        return data, asked.test, "test"
    if asked.study == "fig4":
        return data, None, "validation"  # nothing is measured on images

    def part(first: float, last: float) -> Data:
        assert data is not None
        names = [named_part(name, Part(first, last)) for name in ([data] if isinstance(data, str) else data)]
        return names[0] if isinstance(data, str) else names

    return part(asked.holdout, 1.0), part(0.0, asked.holdout), "validation"


def _runs_of(
    study: Study, runs: Runs, seeds: Sequence[int], console: Console, alone: bool
) -> dict[str, list[ArmRun]]:
    """By arm. Arms that cannot be carried out, or come to the run of an earlier one, are left out, with the reason.

    alone: whether there is no other study, so that one that cannot be carried out is an error.
    """
    found: dict[str, list[ArmRun]] = {}
    for arm in study.arms:
        try:
            own = runs.of(arm, seeds)
        except UserError as error:
            needed = study.baseline(arm) is arm
            what = study.name if needed else f"{study.name}, {arm.name},"
            if needed and alone:
                raise UserError(f"{study.name} cannot be run: {error}") from error
            console.print(f"{what} is left out. {error}", highlight=False, markup=False)
            if needed:
                return {}
            continue
        same = [name for name, others in found.items() if others[0].folder == own[0].folder]
        if same:
            console.print(f"{study.name}: '{arm.name}' is the same as '{same[0]}'.", highlight=False, markup=False)
            continue
        found[arm.name] = own
    if len(found) < 2 and alone:
        raise UserError(f"{study.name} cannot be run: only one of its arms can be. See the reasons above.")
    return found if len(found) > 1 else {}


def _add(
    work: dict[Path, Work], run: ArmRun, study: Study, runs: Runs, test: ImageSource | None, how: Measuring
) -> None:
    """Add a run, or how it is measured to one that is there without."""
    before = work.get(run.folder)
    if before is None:
        run.require_same(runs.images_of(run))
    if test is None or not study.probes:
        work.setdefault(run.folder, Work(run, None, None))
    elif before is None or before.how is None:
        how = dataclasses.replace(how, scene_tasks=study.scene_tasks)
        if run.test is not None:
            assert isinstance(test, ArraySource)
            test = ArraySource(run.test, test.images, test.classes, test.labels)
        work[run.folder] = Work(run, how, how.described(runs.images_of(run), test))


def _refuse_positions(positions: Positions) -> None:
    """Of the recipe's positions, arms keep how the level goes on over the run, and set kind and level themselves."""
    usual = Positions()
    for name in ("convention", "covariance", "noise_on", "l1"):
        if getattr(positions, name) != getattr(usual, name):
            raise UserError(
                f"positions.{name}={getattr(positions, name)} is given, but the arms of this study have positions of "
                "their own. Leave it out; `noise` and `levels` set noise levels."
            )
