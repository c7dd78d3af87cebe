"""The studies: which arms are compared, and what the paper found (1 % linear probe, ViT-B, 300 epochs)."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.positions import WEIGHT_STD

# Noise levels as the paper gives them, that is for a ViT-B. The same noise_std is less noise in a narrower encoder,
# so recipes get the ratio ‖A n‖ / ‖ψ‖ that it means there.
LEVELS = (0.0, 0.1, 0.25, 0.5, 1.0)
_PAPER_LEVEL = 0.25
_PAPER_WIDTH = 768
_L1 = 1e-5  # the paper does not say its weight


@dataclass(frozen=True)
class Arm:
    """One thing to try.

    Args:
        name: as the paper calls it.
        fields: of the recipe, that make it; all others are the same in every arm.
        paper: accuracy in the paper.
        level: noise level, where the study varies it.
        series: curve it belongs to, where there are several.
    """

    name: str
    fields: dict[str, Any]
    paper: float | None = None
    level: float | None = None
    series: str = ""


@dataclass(frozen=True)
class Study:
    """Arms that are compared with the first of them.

    Args:
        name: of the command.
        title: what is asked.
        arms: the baseline first.
        form: "points" with accuracies, "curves" over the noise level, or "norms" of A and m̃ over it.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    form: Literal["points", "curves", "norms"] = "points"

    @property
    def probes(self) -> bool:
        """Whether encoders are to be evaluated; norms are in the logs."""
        return self.form != "norms"


def ratio(level: float) -> float:
    """‖A n‖ / ‖ψ‖ at the start of a ViT-B with this noise_std (see `positions.noise_std_at_start`)."""
    return level * WEIGHT_STD * math.sqrt(2 * _PAPER_WIDTH)


def find_studies(name: str, levels: tuple[float, ...] = LEVELS, l1: float = _L1) -> list[Study]:
    """The study of this name, or all of them."""
    studies = {study.name: study for study in _studies(levels, l1)}
    if name == "all":
        return list(studies.values())
    if name not in studies:
        known = [*studies, "all"]
        raise UserError(f"There is no ablation '{name}'.{did_you_mean(name, known)} There are {', '.join(known)}.")
    return [studies[name]]


def _studies(levels: tuple[float, ...], l1: float) -> list[Study]:
    none = {"positions": {"kind": "sincos"}}
    stop = _stochastic(_PAPER_LEVEL)
    # Half-resolution targets are masked cell by cell; so must their rivals be, or masks would be varied as well.
    cells = {"masking": {"cell": 2}}
    return [
        Study(
            "table6",
            "Which positions?",
            (
                Arm("sin-cos", none, 54.3),
                Arm("learned", {"positions": {"kind": "learned"}}, 54.4),
                Arm("StoP", stop, 57.8),
            ),
        ),
        Study(
            "table7",
            "Noise on which tokens?",
            (
                Arm("none", none, 54.3),
                Arm("context only", _stochastic(_PAPER_LEVEL, noise_on="context"), 55.1),
                Arm("both", _stochastic(_PAPER_LEVEL, noise_on="both"), 56.8),
                Arm("masked only", stop, 57.8),
            ),
        ),
        Study(
            "table8",
            "Would targets of half the resolution do as well?",
            (
                Arm("full resolution", {**none, **cells}, 54.3),
                Arm("half, bilinear", {**none, "targets": {"resolution": "half_bilinear"}}, 52.1),
                Arm("half, max-pooled", {**none, "targets": {"resolution": "half_max"}}, 54.1),
                Arm("StoP", {**stop, **cells}, 57.8),
            ),
        ),
        Study(
            "fig3",
            "How much noise, and must its covariance be learnt?",
            (
                Arm("no noise", none, 54.3, 0.0),
                *(_fig3_arm("learned", level, {}) for level in levels if level),
                *(_fig3_arm("fixed", level, {"covariance": "fixed"}) for level in levels if level),
            ),
            "curves",
        ),
        Study(
            "fig4",
            "What does noise do to ‖A‖ and ‖m̃‖?",
            (
                Arm("no noise", none, None, 0.0),
                *(Arm(f"noise {level:g}", _stochastic(level), None, level) for level in levels if level),
            ),
            "norms",
        ),
        Study(
            "l1",
            "Is it only regularisation of A?",
            (
                Arm("none", none, 54.3),
                Arm("L1 on A", {"positions": {"kind": "sincos", "l1": l1}}, 55.8),
                Arm("StoP", stop, 57.8),
            ),
        ),
        Study(
            "covariance",
            "Which covariance?",
            (
                Arm("none", none),
                Arm("tied (StoP)", stop),
                *(
                    Arm(name, _stochastic(_PAPER_LEVEL, covariance=covariance))
                    for name, covariance in (
                        ("fixed, s²I", "fixed"),
                        ("learned, untied", "untied"),
                        ("diagonal", "diagonal"),
                        ("tied, level from the image", "conditional"),
                    )
                ),
            ),
        ),
    ]


def _stochastic(level: float, **options: str) -> dict[str, Any]:
    return {"positions": {"kind": "stochastic", "noise_to_signal": round(ratio(level), 6), **options}}


def _fig3_arm(series: str, level: float, options: dict[str, str]) -> Arm:
    # The text gives one point of the figure: +3.5 at 0.25.
    paper = 57.8 if series == "learned" and level == _PAPER_LEVEL else None
    return Arm(f"{series} {level:g}", _stochastic(level, **options), paper, level, series)
