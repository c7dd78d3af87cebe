"""Do stochastic positions help where *what* is predictable and *where* is not? A study on the built-in scenes."""

from typing import Any

from flexpredict.data.scenes.options import IMAGE_OPTIONS, SceneOptions, read_options
from flexpredict.errors import UserError
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.paper import SINCOS, stochastic
from flexpredict.studies.ablations.study import Arm, Choices, Study

_LEVELS = (0.2, 0.5, 1.0, 2.0)
_SCENES = 10_000
_FIRST_TEST = 10_000  # earlier scenes of the test split were looked at while recipes were chosen
_SEEDS = 5


def where_study(recipe: Recipe, choices: Choices) -> Study:
    """Stochastic positions less sin-cos, for scenes whose parts are ever freer in their place, at several levels."""
    levels = [level for level in choices.levels or _LEVELS if level]
    arms = []
    for freedom in choices.where:
        train, test = _scenes(recipe, freedom)
        series = f"where={freedom:g}"
        baseline = f"{series}, sin-cos"
        own: dict[str, Any] = {"series": series, "against": baseline, "test": test}
        arms.append(Arm(baseline, {"data": train, **SINCOS}, level=0.0, **own))
        for level in levels:
            noisy = stochastic(recipe.positions, level)
            arms.append(Arm(f"{series}, noise {level:g}", {"data": train, **noisy}, level=level, **own))
    title = "Do stochastic positions help where what is predictable and where is not?"
    return Study("where", title, tuple(arms), "surface", seeds=_SEEDS, scene_tasks=True)


def _scenes(recipe: Recipe, freedom: float) -> tuple[str, str]:
    """Names of training and test scenes, a fifth as many."""
    data = recipe.data
    if not isinstance(data, str) or data.partition(":")[0] != "scenes":
        raise UserError(f"data is {data}, but the study where needs the built-in scenes. Use --data scenes:10000.")
    if not 0 <= freedom <= 1:
        raise UserError(f"where is {freedom:g}; use numbers from 0 (parts always on top of objects) to 1 (anywhere).")
    asked = read_options(data, SceneOptions(count=_SCENES), IMAGE_OPTIONS)
    if asked.where is not None or asked.split != "train":
        raise UserError(f"data is {data}, but the study where chooses where and split itself. Leave them out.")
    every = f"size={asked.size},seed={asked.seed},where={freedom:g}"
    tests = max(1, asked.count // 5)
    return f"scenes:{asked.count},{every}", f"scenes:{tests},{every},split=test,first={_FIRST_TEST}"
