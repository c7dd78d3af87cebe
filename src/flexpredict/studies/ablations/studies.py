"""The studies there are, by name."""

from collections.abc import Callable

from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.paper import paper_studies
from flexpredict.studies.ablations.search import search_studies
from flexpredict.studies.ablations.study import Choices, Study
from flexpredict.studies.ablations.where import where_study

PAPER = {
    "table6": "positions",
    "table7": "noise on which tokens",
    "table8": "half resolution",
    "fig3": "level and covariance",
    "fig4": "norms of A and m̃",
    "l1": "L1 on A",
    "covariance": "tied, fixed, untied, diagonal, from the image",
    "mae": "on MAE",
}
SEARCH = {
    "targets": "norm, standardization, layers",
    "noise": "level, as it starts and held",
    "ema": "of the target encoder",
    "lr": "learning rate",
    "optimizer": "AdamW, Muon, weight decay, clipping",
    "masks": "number, size, aspect, contexts",
    "predictor": "its size",
    "augmentation": "crop, flip, blur",
    "grid": "patches",
    "combined": "each lever set back",
}
GROUPS = {"paper": tuple(PAPER), "search": tuple(SEARCH)}
_OF_ONE_NUMBER = ("fig3", "fig4", "noise", "ema", "lr", "grid", "where")


def names_of(study: str) -> tuple[str, ...]:
    """The study of this name, or all of a group."""
    known = (*PAPER, *SEARCH, "where", *GROUPS)
    if study not in known:
        raise UserError(f"There is no study '{study}'.{did_you_mean(study, known)} There are {', '.join(known)}.")
    return GROUPS.get(study, (study,))


def find_studies(study: str, recipe: Recipe, choices: Choices | None = None) -> list[Study]:
    """The study of this name, or all of a group. recipe: what all arms share, with nothing left open."""
    choices = choices or Choices()
    names = names_of(study)
    if choices.levels and (len(names) > 1 or names[0] not in _OF_ONE_NUMBER):
        raise UserError(
            f"levels are given, and {study} does not vary one number. Leave them out, or choose one of "
            f"{', '.join(_OF_ONE_NUMBER)}."
        )
    builders: dict[str, Callable[[], Study]] = {
        **paper_studies(recipe.positions, choices),
        **search_studies(recipe, choices),
        "where": lambda: where_study(recipe, choices),
    }
    return [builders[name]() for name in names]
