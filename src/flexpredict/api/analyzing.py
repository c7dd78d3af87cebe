"""`analyze`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flexpredict.errors import UserError
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import Checked, ranged
from flexpredict.settings.run import Names, as_list

if TYPE_CHECKING:
    from flexpredict.studies.analyses.output import Analysis

Figure = Literal["positions", "predictions", "norms", "blur", "proposition1"]
# Parameters that only some figures use.
_USED_BY: dict[str, tuple[Figure, ...]] = {
    "run": ("positions", "predictions", "norms", "blur"),
    "step": ("positions", "predictions", "blur"),
    "heads": ("positions", "predictions", "blur"),
    "noise_std": ("positions", "blur"),
    "seed": ("positions", "blur", "proposition1"),
    "queries": ("positions",),
    "draws": ("positions",),
    **dict.fromkeys(("image", "data", "index", "patch", "mask_seed", "temperature"), ("predictions",)),
}


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings(Checked):
    """Settings of `analyze`.

    Args:
        figure: the figure to draw.
        run: run folders, or (positions, predictions, blur) published checkpoints of I-JEPA or StoP.
        out: folder for the picture and its data.
        step: step of a kept checkpoint (default: the last).
        heads: number of attention heads, for a published checkpoint that does not state it.
        noise_std: noise level (default: that of each run).
        seed: seed of the noise or samples that are drawn (default: 0).
        queries: patches to look at, each ROW,COLUMN, counted from 1 (default: four).
        draws: noise samples for the mean (default: 1000).
        image: an image file to predict in.
        data: images that `index` selects from (default: the run's own data).
        index: number of the image, counted from 0 (default: 0).
        patch: the masked patch, ROW,COLUMN, counted from 1 (default: the middle of a target block).
        mask_seed: seed of the mask (default: 0).
        temperature: temperature of the softmax (default: 1, as the paper names none).
    """

    figure: Figure = field(kw_only=False)
    run: Names | None = field(default=None, kw_only=False)
    out: str | Path = "analysis"
    step: int | None = ranged(None, least=0)
    heads: int | None = ranged(None, least=1)
    noise_std: float | None = ranged(None, least=0)
    seed: int | None = ranged(None, least=0)
    queries: list[str] | None = None
    draws: int | None = ranged(None, least=1)
    image: str | Path | None = None
    data: str | None = None
    index: int | None = ranged(None, least=0)
    patch: str | None = None
    mask_seed: int | None = ranged(None, least=0)
    temperature: float | None = ranged(None, above=0)


@takes_fields_of(AnalysisSettings)
def analyze(asked: AnalysisSettings) -> "Analysis":
    """Look into one or more runs: a figure, and its data in a file beside it.

    positions shows how similar a noisy position is to all others (paper, Figure 5). predictions shows which tokens of
    an image the prediction of a masked patch is similar to (Figure 6), for one or two runs of ijepa. norms plots the
    norms of A and m̃ against the noise level and over training (Figure 4), from the logs of several runs. blur shows
    which frequencies of the sin-cos positions the learned covariance hides, for one to six runs. proposition1
    compares the best predictor from a noisy position with the Gaussian blur of Proposition 1, and needs no run.
    """
    given = {name: value for name, value in vars(asked).items() if name in _USED_BY and value is not None}
    for name in given:
        if asked.figure not in _USED_BY[name]:
            raise UserError(
                f"`{name}` is not used by the figure {asked.figure}, only by {', '.join(_USED_BY[name])}."
            )
    runs = as_list(asked.run or ())
    if not runs and asked.figure in _USED_BY["run"]:
        raise UserError(f"The figure {asked.figure} needs at least one run: name it as `run`.")
    return _draw(asked.figure, runs, Path(asked.out), given)


def _draw(figure: Figure, names: list[str], out: Path, given: dict[str, Any]) -> "Analysis":
    from flexpredict.studies.analyses.blur import draw_blur
    from flexpredict.studies.analyses.norms import draw_norms
    from flexpredict.studies.analyses.opening import open_model
    from flexpredict.studies.analyses.positions import draw_positions
    from flexpredict.studies.analyses.predictions import draw_predictions
    from flexpredict.studies.analyses.proposition1 import draw_proposition1

    opening = {name: given.pop(name) for name in ("step", "heads") if name in given}
    given.pop("run", None)
    if "image" in given:
        given["image"] = Path(given["image"])
    if figure == "norms":
        return draw_norms(names, out)
    if figure == "proposition1":
        return draw_proposition1(out, **given)
    if figure == "positions" and len(names) > 1:
        raise UserError(f"The figure positions shows one run, but `run` names {len(names)}. Draw them one by one.")
    models = [open_model(name, **opening) for name in names]
    if figure == "positions":
        return draw_positions(models[0], out, **given)
    return draw_blur(models, out, **given) if figure == "blur" else draw_predictions(models, out, **given)
