"""`ablate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.demo.recipe import STEPS, recipe_values
from flexpredict.errors import UserError
from flexpredict.settings.ablation import AblationSettings, StudySettings
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.run import split_values
from flexpredict.showing import SimpleResult
from flexpredict.training.recipe_parser import make_recipe, merge


@dataclass(frozen=True)
class AblateResult(SimpleResult):
    """The result of `ablate`, which shows its plan, tables and figures as it makes them.

    Args:
        out: the folder of runs, tables and figures.
        finished: whether everything is done; if not, the same call continues.
        dry_run: whether the plan was only shown.
        page: report of the runs of the first seed.
    """

    out: Path
    finished: bool
    dry_run: bool = False
    page: Path | None = None

    @property
    def files(self) -> list[Path]:
        return [] if self.page is None else [self.page]


@takes_some_fields_of(AblationSettings)
def ablate(given: dict[str, Any]) -> AblateResult:
    """Answer a question with several seeds: pre-train every arm, and compare the encoders.

    Measures linear probes with 1 % and all of the labels, k-NN, how much features depend on position, and how much
    they change when images are shifted. Writes tables with 95 % intervals and paired differences, and a figure. Runs
    of one seed differ only in what is varied. Finished work is not repeated: run the same command again to continue.
    """
    fields, others = split_values(AblationSettings, given)
    asked = StudySettings(**others)
    if asked.study == "where":  # only the scenes have parts
        fields = {"data": "scenes:10000,size=64"} | fields
    if _at_demo_size(asked, fields):
        fields = merge(_demo_recipe(fields), fields)
    recipe = make_recipe(fields, asked.config)
    check_ranges(recipe)
    check_ranges(asked)
    if recipe.minutes is not None:
        raise UserError(
            f"minutes={recipe.minutes:g} would give each arm a different length. Use epochs=…, the same for all."
        )

    from flexpredict.reports.writing import write_comparison
    from flexpredict.studies.ablations.ablating import ablate as run_ablation
    from flexpredict.studies.ablations.planning import Ablation

    done = run_ablation(Ablation(base=recipe, **vars(asked)))
    page = write_comparison(Path(asked.out), recipe.seed) if done else None
    return AblateResult(Path(asked.out), done or asked.dry_run, asked.dry_run, page)


def _at_demo_size(asked: StudySettings, fields: dict[str, Any]) -> bool:
    """Whether to train as `flexpredict demo` does: on the scenes, with neither a recipe file nor a model given."""
    return str(fields.get("data")).startswith("scenes") and asked.config is None and "model" not in fields


def _demo_recipe(fields: dict[str, Any]) -> dict[str, Any]:
    without = {"positions", "seed", "data"} | ({"predictor"} if fields.get("method") == "data2vec" else set())
    values = recipe_values("StoP", STEPS, seed=0)
    return {name: value for name, value in values.items() if name not in without}
