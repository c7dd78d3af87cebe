"""Turns the names of studies into the arms and runs that are possible with these images on this machine."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from flexpredict.data.sources.derived import Part, named_part
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError, did_you_mean
from flexpredict.evaluation.probing import check_probe
from flexpredict.evaluation.shared_images import overlap
from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.downstream import Downstream
from flexpredict.studies.ablations.measuring import Measuring
from flexpredict.studies.ablations.paper import PAPER, WHERE
from flexpredict.studies.ablations.processes import Data
from flexpredict.studies.ablations.runs import Runs, StudyRun, TestImages, plan_of
from flexpredict.studies.ablations.search import SEARCH
from flexpredict.studies.ablations.study import Asked, Study

GROUPS = {"paper": tuple(PAPER), "search": tuple(SEARCH)}
_BUILDERS = {**PAPER, **SEARCH, **WHERE}
_OF_ONE_NUMBER = ("fig3", "fig4", "noise", "ema", "lr", "grid", "where")


@dataclass(kw_only=True)
class Ablation(StudySettings):
    """Settings of the study and the recipe that its arms change; the recipe's seed is the first seed."""

    base: Recipe

    @property
    def folder(self) -> Path:
        """Folder for runs, tables and figures."""
        return Path(self.out)

    @property
    def measuring(self) -> Measuring:
        downstream = Downstream.of(self.transfer, self.clevr, self.davis)
        return Measuring(tuple(self.labels), self.subsets, images=self.location_images, downstream=downstream)


@dataclass(frozen=True)
class Agenda:
    """The studies and all of their runs.

    Args:
        role: of the test images, "validation" or "test".
        runs: by names of study and arm, one run for each seed.
        warnings: sentences about test images that encoders or probes have seen before.
    """

    train: ImageSource
    test: TestImages | None
    role: str
    studies: list[Study]
    runs: dict[tuple[str, str], list[StudyRun]]
    warnings: list[str]

    @cached_property
    def work(self) -> dict[Path, StudyRun]:
        """Runs by folder: equal arms share one. Seed by seed, so that a stopped study has complete pairs."""
        seeds = range(max(map(len, self.runs.values())))
        return {run.folder: run for place in seeds for own in self.runs.values() for run in own[place : place + 1]}

    def of(self, study: Study) -> dict[str, list[StudyRun]]:
        """The runs of each arm."""
        return {arm.name: self.runs[study.name, arm.name] for arm in study.arms}

    def seeds(self, study: Study) -> list[int]:
        return [run.recipe.seed for run in self.runs[study.name, study.arms[0].name]]


def make_agenda(asked: Ablation, console: Console) -> Agenda:
    """Opens the images, and refuses impossible settings before anything is started."""
    names = names_of(asked.study)
    if asked.base.data is None:
        raise UserError("No data was named. Give `data` a folder of images, or 'scenes' for the built-in ones.")
    data, test_data, role = _data(asked, asked.base.data)
    base = dataclasses.replace(asked.base, data=data)
    train = open_source(data)
    studies = find_studies(asked, plan_of(base, train).recipe)
    if any("positions" in arm.fields for study in studies for arm in study.arms):
        _refuse_positions(base.positions)
    test = None
    if test_data is not None and any(study.probes for study in studies):
        test = TestImages(test_data, open_source(test_data))
    runs = Runs(base, train, asked.folder, test, asked.measuring)
    possible: list[Study] = []
    by_arm: dict[tuple[str, str], list[StudyRun]] = {}
    for study in studies:
        seeds = range(base.seed, base.seed + (asked.seeds or study.seeds))
        found = _runs_of(study, runs, seeds, console, alone=len(names) == 1)
        if found:
            possible.append(dataclasses.replace(study, arms=tuple(arm for arm in study.arms if arm.name in found)))
            by_arm |= {(study.name, arm): own for arm, own in found.items()}
    agenda = Agenda(train, test, role, possible, by_arm, [])
    pairs = {
        (run.train.name, run.test.source.name): (run.train, run.test.source)
        for run in agenda.work.values()
        if run.test
    }
    for trained_on, tested_on in pairs.values():
        check_probe(trained_on, tested_on, asked.measuring.probing())
    if test is not None and role == "test" and (sentence := overlap(train, test.source, console)):
        agenda.warnings.append(sentence)
    agenda.warnings.extend(
        asked.measuring.downstream.check((data,) if isinstance(data, str) else tuple(data), console)
    )
    for run in agenda.work.values():
        run.require_same()
    return agenda


def names_of(study: str) -> tuple[str, ...]:
    """The study of this name, or all studies of this group."""
    known = (*_BUILDERS, *GROUPS)
    if study not in known:
        raise UserError(f"There is no study '{study}'.{did_you_mean(study, known)} There are {', '.join(known)}.")
    return GROUPS.get(study, (study,))


def find_studies(settings: StudySettings, recipe: Recipe) -> list[Study]:
    """The chosen study, or all studies of a group. recipe: the shared recipe, with all values settled."""
    names = names_of(settings.study)
    if settings.levels and (len(names) > 1 or names[0] not in _OF_ONE_NUMBER):
        raise UserError(
            f"levels are given, but {settings.study} does not vary one number. Leave them out, or choose one of "
            f"{', '.join(_OF_ONE_NUMBER)}."
        )
    if settings.arms and len(names) > 1:
        raise UserError(
            f"arms are given, but {settings.study} is {len(names)} studies. Leave them out, or choose one study."
        )
    studies = [_BUILDERS[name](Asked(settings, recipe)) for name in names]
    return [study.only(settings.arms) for study in studies] if settings.arms else studies


def _data(asked: Ablation, data: Data) -> tuple[Data, Data | None, str]:
    """Names of the images to pre-train on and to measure on, and the role of the latter."""
    if asked.study == "where":
        if asked.test is not None:
            raise UserError(f"test is {asked.test}, but the study where has test scenes of its own. Leave it out.")
        return data, None, "test"
    if asked.test is not None:
        return data, asked.test, "test"

    def part(first: float, last: float) -> Data:
        part = Part(first, last)
        return named_part(data, part) if isinstance(data, str) else [named_part(name, part) for name in data]

    return part(asked.holdout, 1.0), part(0.0, asked.holdout), "validation"


def _runs_of(
    study: Study, runs: Runs, seeds: Sequence[int], console: Console, alone: bool
) -> dict[str, list[StudyRun]]:
    """The runs of each arm. Leaves out arms that cannot be run or equal an earlier one, and prints why.

    alone: whether this is the only study; then it is an error if it cannot be run.
    """
    found: dict[str, list[StudyRun]] = {}
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


def _refuse_positions(positions: Positions) -> None:
    """Refuses settings of positions that arms ignore: they keep its schedule, and set kind and level themselves."""
    usual = Positions()
    for name in ("convention", "covariance", "noise_on", "l1"):
        if getattr(positions, name) != getattr(usual, name):
            raise UserError(
                f"positions.{name}={getattr(positions, name)} is given, but the arms of this study set positions "
                "themselves. Leave it out; `noise` and `levels` set noise levels."
            )
