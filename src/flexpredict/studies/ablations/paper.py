"""The paper's studies, and what it found (1 % linear probe, ViT-B, 300 epochs).

Noise levels are the ratio ‖A n‖ / ‖ψ‖ at the start, which means the same at every width. The paper gives noise_std
for a ViT-B, where 0.25 is a ratio of 0.2.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import WEIGHT_STD, Positions
from flexpredict.settings.targets import Targets
from flexpredict.studies.ablations.study import Arm, Study

_PAPER_WIDTH = 768
_BEST = 0.25  # of the paper's levels
_KEPT = ("hold", "schedule", "final_level")  # of the recipe's positions, in arms that have tied noise
SINCOS: dict[str, Any] = {"positions": {"kind": "sincos"}}


def ratio(noise_std: float) -> float:
    """‖A n‖ / ‖ψ‖ at the start of a ViT-B with this noise_std (see `positions.noise_std_at_start`), to two digits."""
    return round(noise_std * WEIGHT_STD * math.sqrt(2 * _PAPER_WIDTH), 2)


LEVELS = (0.0, *map(ratio, (0.1, _BEST, 0.5, 1.0)))


def stochastic(positions: Positions, level: float, **options: Any) -> dict[str, Any]:
    """Fields of an arm with noise of this level; how it goes on over the run is as in the recipe's positions."""
    tied = options.get("covariance", "tied") == "tied"
    usual = Positions()
    kept = {
        name: getattr(positions, name)
        for name in _KEPT
        if getattr(positions, name) != getattr(usual, name) and (tied or name != "hold")
    }
    return {"positions": {"kind": "stochastic", "noise_to_signal": level, **kept, **options}}


def paper_studies(positions: Positions, asked: StudySettings) -> dict[str, Callable[[], Study]]:
    """By name. positions: of the recipe, see `stochastic`."""

    def noisy(level: float = asked.noise, **options: Any) -> dict[str, Any]:
        return stochastic(positions, level, **options)

    levels = [level for level in asked.levels or LEVELS if level]
    return {
        "table6": lambda: _table6(noisy),
        "table7": lambda: _table7(noisy),
        "table8": lambda: _table8(noisy),
        "fig3": lambda: _fig3(noisy, levels),
        "fig4": lambda: _fig4(noisy, levels),
        "l1": lambda: _l1(noisy, asked.l1_weight),
        "covariance": lambda: _covariance(noisy),
        "mae": lambda: _mae(noisy),
    }


Noisy = Callable[..., dict[str, Any]]


def _table6(noisy: Noisy) -> Study:
    arms = (
        Arm("sin-cos", SINCOS, 54.3),
        Arm("learned", {"positions": {"kind": "learned"}}, 54.4),
        Arm("StoP", noisy(), 57.8),
    )
    return Study("table6", "Which positions?", arms)


def _table7(noisy: Noisy) -> Study:
    arms = (
        Arm("none", SINCOS, 54.3),
        Arm("context only", noisy(noise_on="context"), 55.1),
        Arm("both", noisy(noise_on="both"), 56.8),
        Arm("masked only", noisy(), 57.8),
    )
    return Study("table7", "Noise on which tokens?", arms)


def _table8(noisy: Noisy) -> Study:
    # Half-resolution targets are masked cell by cell; so must their rivals be, or masks would be varied as well.
    full = {"targets": {"resolution": "full"}, "masking": {"cell": 2}}

    def half(resolution: str) -> dict[str, Any]:
        return {**SINCOS, "targets": {"resolution": resolution}, "masking": {"cell": 1}}

    arms = (
        Arm("full resolution", {**SINCOS, **full}, 54.3),
        Arm("half, bilinear", half("half_bilinear"), 52.1),
        Arm("half, max-pooled", half("half_max"), 54.1),
        Arm("StoP", {**noisy(), **full}, 57.8),
    )
    return Study("table8", "Would targets of half the resolution do as well?", arms)


def _fig3(noisy: Noisy, levels: list[float]) -> Study:
    def arm(series: str, level: float, **options: Any) -> Arm:
        # The text gives one point of the figure: +3.5 at 0.25.
        paper = 57.8 if series == "learned covariance" and level == ratio(_BEST) else None
        return Arm(f"{series}, {level:g}", noisy(level, **options), paper, level, series)

    arms = (
        Arm("no noise", SINCOS, 54.3, 0.0),
        *(arm("learned covariance", level) for level in levels),
        *(arm("fixed covariance", level, covariance="fixed") for level in levels),
    )
    return Study("fig3", "How much noise, and must its covariance be learned?", arms, "curves")


def _fig4(noisy: Noisy, levels: list[float]) -> Study:
    arms = (
        Arm("no noise", SINCOS, None, 0.0),
        *(Arm(f"noise {level:g}", noisy(level), None, level) for level in levels),
    )
    return Study("fig4", "What does noise do to ‖A‖ and ‖m̃‖?", arms, "norms")


def _l1(noisy: Noisy, weight: float) -> Study:
    arms = (
        Arm("none", SINCOS, 54.3),
        Arm("L1 on A", {"positions": {"kind": "sincos", "l1": weight}}, 55.8),
        Arm("StoP", noisy(), 57.8),
    )
    return Study("l1", "Is it only regularization of A?", arms)


def _covariance(noisy: Noisy) -> Study:
    others = {
        "fixed, s²I": "fixed",
        "learned, untied": "untied",
        "diagonal": "diagonal",
        "tied, level from the image": "conditional",
    }
    arms = (
        Arm("none", SINCOS),
        Arm("tied (StoP)", noisy()),
        *(Arm(name, noisy(covariance=covariance)) for name, covariance in others.items()),
    )
    return Study("covariance", "Which covariance?", arms)


def _mae(noisy: Noisy) -> Study:
    """The paper reports no numbers: attempts "were not successful"."""
    # What the recipe says of I-JEPA's targets and masks means nothing to it.
    mae = {"method": "mae", "targets": dataclasses.asdict(Targets()), "masking": {"kind": None, "cell": 1}}
    arms = (Arm("MAE, sin-cos", {**SINCOS, **mae}), Arm("MAE, StoP", {**noisy(), **mae}))
    return Study("mae", "Do stochastic positions help where pixels are predicted?", arms)
