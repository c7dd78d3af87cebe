"""`ablate`."""

import dataclasses
from pathlib import Path
from typing import Any

from flexpredict.demo.recipe import STEPS, recipe_values
from flexpredict.errors import UserError
from flexpredict.settings.ablation import AblationSettings
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.positions import Positions
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.typed_values import typed_values
from flexpredict.showing import SimpleResult
from flexpredict.training.recipe_parser import make_recipe, merge

_RECIPE_FIELDS = {field.name for field in dataclasses.fields(Recipe)}


@dataclasses.dataclass(frozen=True)
class AblateResult(SimpleResult):
    """What was done. Plan, tables and figures are shown when they are made.

    Args:
        out: the folder of runs, tables and figures.
        finished: whether all is done that was asked for; if not, the same call goes on.
        dry_run: whether the plan was only shown.
    """

    out: Path
    finished: bool
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"out": str(self.out), "finished": self.finished, "dry_run": self.dry_run}


@takes_fields_of(AblationSettings)
def ablate(given: dict[str, Any]) -> AblateResult:
    """Ask a question of the paper again: pre-train every arm with several seeds, and compare the encoders.

    They are probed with 1 % and all of the labels. Writes a table with 95 % intervals and paired differences beside
    the paper's column, and a figure. Runs of one seed differ in nothing but what is varied. What is done is not done
    again: the same command goes on.
    """
    values = typed_values(AblationSettings, given)
    asked = AblationSettings(**{name: value for name, value in values.items() if name not in _RECIPE_FIELDS})
    fields = {name: value for name, value in values.items() if name in _RECIPE_FIELDS}
    if _at_demo_size(asked, fields):
        fields = merge(_demo_recipe(fields), fields)
    recipe = make_recipe(fields, asked.config)
    check_ranges(recipe)
    _refuse_positions(recipe.positions)
    if recipe.minutes is not None:
        raise UserError(
            f"minutes={recipe.minutes:g} would give each arm another length. Use epochs=…, the same for all."
        )
    if recipe.data is None:
        raise UserError(
            "The images to pre-train on are missing: give `data`, a folder, or scenes for the built-in ones."
        )
    base: dict[str, Any] = {
        name: value for name, value in dataclasses.asdict(recipe).items() if name not in ("positions", "seed")
    }

    from flexpredict.studies.ablations.ablating import Ablation, default_test
    from flexpredict.studies.ablations.ablating import ablate as run_ablation
    from flexpredict.studies.ablations.studies import LEVELS, find_studies

    done = run_ablation(
        Ablation(
            find_studies(asked.study, tuple(asked.levels or LEVELS), asked.l1_weight),
            base,
            str(asked.test) if asked.test else default_test(recipe.data),
            tuple(range(recipe.seed, recipe.seed + asked.seeds)),
            Path(asked.out),
            tuple(asked.labels),
            asked.jobs,
        ),
        dry_run=asked.dry_run,
    )
    return AblateResult(Path(asked.out), done or asked.dry_run, asked.dry_run)


def _at_demo_size(asked: AblationSettings, fields: dict[str, Any]) -> bool:
    """The scenes without a recipe or a model of one's own: as `flexpredict demo` trains on them."""
    return str(fields.get("data")).startswith("scenes") and asked.config is None and "model" not in fields


def _demo_recipe(fields: dict[str, Any]) -> dict[str, Any]:
    without = {"positions", "seed", "data"} | ({"predictor"} if fields.get("method") == "data2vec" else set())
    values = recipe_values("StoP", STEPS, seed=0)
    return {name: value for name, value in values.items() if name not in without}


def _refuse_positions(positions: Positions) -> None:
    """Each arm has its own. Kind and level are in every recipe and may be there, for nothing."""
    usual = Positions(positions.kind, positions.noise_std, positions.noise_to_signal)
    changed = [
        field.name
        for field in dataclasses.fields(Positions)
        if getattr(positions, field.name) != getattr(usual, field.name)
    ]
    if changed:
        raise UserError(
            f"positions.{changed[0]} is given, and positions are what ablations vary: each arm has its own. Leave it "
            "out; noise levels are given by `levels`."
        )
