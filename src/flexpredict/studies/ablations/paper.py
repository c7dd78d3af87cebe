"""The paper's studies with its results (1 % linear probe, ViT-B, 300 epochs), and a study of its main idea on scenes.

Noise levels are the ratio ‖A n‖ / ‖ψ‖ at the start, which means the same at every width. The paper gives noise_std
for a ViT-B: 0.25 is a ratio of 0.2.
"""

import dataclasses
import math
from typing import Any

from flexpredict.data.scenes.scenes import IMAGE_OPTIONS, SceneOptions, read_options
from flexpredict.errors import UserError
from flexpredict.settings.positions import WEIGHT_STD
from flexpredict.settings.targets import Targets
from flexpredict.studies.ablations.study import SINCOS, Arm, Asked, Builder, Study

_PAPER_WIDTH = 768
_BEST = 0.25  # of the paper's levels
_WHERE_LEVELS = (0.2, 0.5, 1.0, 2.0)
_SCENES = 10_000
_FIRST_TEST = 10_000  # earlier scenes of the test split were looked at when recipes were chosen


def ratio(noise_std: float) -> float:
    """‖A n‖ / ‖ψ‖ at the start of a ViT-B with this noise_std (see `positions.noise_std_at_start`), to two digits."""
    return round(noise_std * WEIGHT_STD * math.sqrt(2 * _PAPER_WIDTH), 2)


LEVELS = (0.0, *map(ratio, (0.1, _BEST, 0.5, 1.0)))


def _table6(asked: Asked) -> Study:
    arms = (
        Arm("sin-cos", SINCOS, 54.3),
        Arm("learned", {"positions": {"kind": "learned"}}, 54.4),
        Arm("StoP", asked.noisy(), 57.8),
    )
    return Study("table6", "Which positions?", arms)


def _table7(asked: Asked) -> Study:
    arms = (
        Arm("none", SINCOS, 54.3),
        Arm("context only", asked.noisy(noise_on="context"), 55.1),
        Arm("both", asked.noisy(noise_on="both"), 56.8),
        Arm("masked only", asked.noisy(), 57.8),
    )
    return Study("table7", "Noise on which tokens?", arms)


def _table8(asked: Asked) -> Study:
    # Half-resolution targets are masked cell by cell; the other arms must be too, or masks would differ as well.
    full = {"targets": {"resolution": "full"}, "masking": {"cell": 2}}

    def half(resolution: str) -> dict[str, Any]:
        return {**SINCOS, "targets": {"resolution": resolution}, "masking": {"cell": 1}}

    arms = (
        Arm("full resolution", {**SINCOS, **full}, 54.3),
        Arm("half, bilinear", half("half_bilinear"), 52.1),
        Arm("half, max-pooled", half("half_max"), 54.1),
        Arm("StoP", {**asked.noisy(), **full}, 57.8),
    )
    return Study("table8", "Would targets of half the resolution do as well?", arms)


def _levels(asked: Asked) -> list[float]:
    return [level for level in asked.settings.levels or LEVELS if level]


def _fig3(asked: Asked) -> Study:
    def arm(series: str, level: float, **options: Any) -> Arm:
        # The text gives one point of the figure: +3.5 at 0.25.
        paper = 57.8 if series == "learned covariance" and level == ratio(_BEST) else None
        return Arm(f"{series}, {level:g}", asked.noisy(level, **options), paper, level, series)

    arms = (
        Arm("no noise", SINCOS, 54.3, 0.0),
        *(arm("learned covariance", level) for level in _levels(asked)),
        *(arm("fixed covariance", level, covariance="fixed") for level in _levels(asked)),
    )
    return Study("fig3", "How much noise, and must its covariance be learned?", arms, "curves")


def _fig4(asked: Asked) -> Study:
    noisy = (Arm(f"noise {level:g}", asked.noisy(level), None, level) for level in _levels(asked))
    arms = (Arm("no noise", SINCOS, None, 0.0), *noisy)
    return Study("fig4", "What does noise do to ‖A‖ and ‖m̃‖?", arms, "norms")


def _l1(asked: Asked) -> Study:
    arms = (
        Arm("none", SINCOS, 54.3),
        Arm("L1 on A", {"positions": {"kind": "sincos", "l1": asked.settings.l1_weight}}, 55.8),
        Arm("StoP", asked.noisy(), 57.8),
    )
    return Study("l1", "Is it only regularization of A?", arms)


def _covariance(asked: Asked) -> Study:
    others = {
        "fixed, s²I": "fixed",
        "learned, untied": "untied",
        "diagonal": "diagonal",
        "tied, level from the image": "conditional",
    }
    arms = (
        Arm("none", SINCOS),
        Arm("tied (StoP)", asked.noisy()),
        *(Arm(name, asked.noisy(covariance=covariance)) for name, covariance in others.items()),
    )
    return Study("covariance", "Which covariance?", arms)


def _mae(asked: Asked) -> Study:
    """The paper gives no numbers, only that attempts "were not successful"."""
    # The targets and masks of the recipe are I-JEPA's; MAE has its own.
    mae = {"method": "mae", "targets": dataclasses.asdict(Targets()), "masking": {"kind": None, "cell": 1}}
    arms = (Arm("MAE, sin-cos", {**SINCOS, **mae}), Arm("MAE, StoP", {**asked.noisy(), **mae}))
    return Study("mae", "Do stochastic positions help where pixels are predicted?", arms)


def _where(asked: Asked) -> Study:
    """Stochastic positions against sin-cos at several noise levels, on scenes with ever freer locations of parts."""
    arms = []
    for freedom in asked.settings.where:
        train, test = _scenes(asked.recipe.data, freedom)
        series = f"where={freedom:g}"
        baseline = f"{series}, sin-cos"
        own: dict[str, Any] = {"series": series, "against": baseline, "test": test}
        arms.append(Arm(baseline, {"data": train, **SINCOS}, level=0.0, **own))
        for level in filter(None, asked.settings.levels or _WHERE_LEVELS):
            arms.append(Arm(f"{series}, noise {level:g}", {"data": train, **asked.noisy(level)}, level=level, **own))
    title = "Do stochastic positions help if content is predictable but its location is not?"
    return Study("where", title, tuple(arms), "surface", seeds=5)


def _scenes(data: str | list[str] | None, freedom: float) -> tuple[str, str]:
    """Names of the training scenes and of a fifth as many test scenes."""
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


PAPER: dict[str, Builder] = {
    "table6": _table6,
    "table7": _table7,
    "table8": _table8,
    "fig3": _fig3,
    "fig4": _fig4,
    "l1": _l1,
    "covariance": _covariance,
    "mae": _mae,
}
WHERE: dict[str, Builder] = {"where": _where}
