"""The studies there are, by name; and the one on scenes whose parts are ever freer in their place."""

from typing import Any

from flexpredict.data.scenes.scenes import IMAGE_OPTIONS, SceneOptions, read_options
from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.paper import PAPER
from flexpredict.studies.ablations.search import SEARCH
from flexpredict.studies.ablations.study import SINCOS, Arm, Asked, Study

GROUPS = {"paper": tuple(PAPER), "search": tuple(SEARCH)}
_OF_ONE_NUMBER = ("fig3", "fig4", "noise", "ema", "lr", "grid", "where")
_LEVELS = (0.2, 0.5, 1.0, 2.0)
_SCENES = 10_000
_FIRST_TEST = 10_000  # earlier scenes of the test split were looked at while recipes were chosen
_SEEDS = 5


def names_of(study: str) -> tuple[str, ...]:
    """The study of this name, or all of a group."""
    known = (*PAPER, *SEARCH, "where", *GROUPS)
    if study not in known:
        raise UserError(f"There is no study '{study}'.{did_you_mean(study, known)} There are {', '.join(known)}.")
    return GROUPS.get(study, (study,))


def find_studies(settings: StudySettings, recipe: Recipe) -> list[Study]:
    """The study that is asked for, or all of a group. recipe: what all arms share, with nothing left open."""
    names = names_of(settings.study)
    if settings.levels and (len(names) > 1 or names[0] not in _OF_ONE_NUMBER):
        raise UserError(
            f"levels are given, and {settings.study} does not vary one number. Leave them out, or choose one of "
            f"{', '.join(_OF_ONE_NUMBER)}."
        )
    builders = {**PAPER, **SEARCH, "where": _where}
    return [builders[name](Asked(settings, recipe)) for name in names]


def _where(asked: Asked) -> Study:
    """Stochastic positions less sin-cos, for scenes whose parts are ever freer in their place, at several levels."""
    arms = []
    for freedom in asked.settings.where:
        train, test = _scenes(asked.recipe.data, freedom)
        series = f"where={freedom:g}"
        baseline = f"{series}, sin-cos"
        own: dict[str, Any] = {"series": series, "against": baseline, "test": test}
        arms.append(Arm(baseline, {"data": train, **SINCOS}, level=0.0, **own))
        for level in filter(None, asked.settings.levels or _LEVELS):
            arms.append(Arm(f"{series}, noise {level:g}", {"data": train, **asked.noisy(level)}, level=level, **own))
    title = "Do stochastic positions help where what is predictable and where is not?"
    return Study("where", title, tuple(arms), "surface", seeds=_SEEDS)


def _scenes(data: str | list[str] | None, freedom: float) -> tuple[str, str]:
    """Names of training and test scenes, a fifth as many."""
    if not isinstance(data, str) or data.partition(":")[0] != "scenes":
        raise UserError(f"data is {data}, but the study where needs the built-in scenes. Use data=scenes:10000.")
    if not 0 <= freedom <= 1:
        raise UserError(f"where is {freedom:g}; use numbers from 0 (parts always on top of objects) to 1 (anywhere).")
    asked = read_options(data, SceneOptions(count=_SCENES), IMAGE_OPTIONS)
    if asked.where is not None or asked.split != "train":
        raise UserError(f"data is {data}, but the study where chooses where and split itself. Leave them out.")
    every = f"size={asked.size},seed={asked.seed},where={freedom:g}"
    tests = max(1, asked.count // 5)
    return f"scenes:{asked.count},{every}", f"scenes:{tests},{every},split=test,first={_FIRST_TEST}"
