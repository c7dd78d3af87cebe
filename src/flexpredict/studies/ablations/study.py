"""What a study is: arms that differ in what is asked, each compared with one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import Recipe

SINCOS: dict[str, Any] = {"positions": {"kind": "sincos"}}
_KEPT = ("hold", "schedule", "final_level")  # of the recipe's positions, in arms that have tied noise


@dataclass(frozen=True)
class Arm:
    """One thing to try.

    Args:
        name: in tables and figures.
        fields: of the recipe, that make it; all others are as the recipe of the study says. Positions and
            augmentation are replaced as a whole.
        paper: accuracy in the paper.
        level: where the arm is on the axis of a curve.
        series: curve it belongs to, where there are several.
        against: name of the arm that it is compared with (by default the first).
        test: images to measure on, where each arm has its own.
    """

    name: str
    fields: dict[str, Any]
    paper: float | None = None
    level: float | None = None
    series: str = ""
    against: str = ""
    test: str | None = None


@dataclass(frozen=True)
class Study:
    """Arms that are compared with the first of them, unless they say otherwise.

    Args:
        name: of the command.
        title: what is asked.
        arms: the baseline first.
        form: of the figure: "points", "curves" over the level, "norms" of A and m̃ over it, or a "surface" over series
            and level.
        seeds: runs of each arm, unless someone says otherwise.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    form: Literal["points", "curves", "norms", "surface"] = "points"
    seeds: int = 3

    @property
    def probes(self) -> bool:
        """Whether encoders are to be evaluated; norms are in the logs."""
        return self.form != "norms"

    def baseline(self, arm: Arm) -> Arm:
        """The arm that this one is compared with."""
        return next((other for other in self.arms if other.name == arm.against), self.arms[0])


@dataclass(frozen=True)
class Asked:
    """What arms are made from: the settings of the study, and the shared recipe with nothing left open."""

    settings: StudySettings
    recipe: Recipe

    def noisy(self, level: float | None = None, **options: Any) -> dict[str, Any]:
        """Fields of an arm with noise of this level (default: `noise` of the settings).

        How the level goes on over the run is as in the recipe's positions.
        """
        positions, usual = self.recipe.positions, Positions()
        tied = options.get("covariance", "tied") == "tied"
        kept = {name: getattr(positions, name) for name in _KEPT if tied or name != "hold"}
        kept = {name: value for name, value in kept.items() if value != getattr(usual, name)}
        level = self.settings.noise if level is None else level
        return {"positions": {"kind": "stochastic", "noise_to_signal": level, **kept, **options}}


Builder = Callable[[Asked], Study]
