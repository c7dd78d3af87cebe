"""What a study is: arms that differ in what is asked, each compared with one of them."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import Recipe

SINCOS: dict[str, Any] = {"positions": {"kind": "sincos"}}
_KEPT = ("hold", "schedule", "final_level")  # of the recipe's positions, in arms that have tied noise


@dataclass(frozen=True)
class Arm:
    """One thing to try: the recipe of the study with other `fields`. Positions and augmentation are replaced."""

    name: str  # in tables and figures
    fields: dict[str, Any]
    paper: float | None = None  # accuracy in the paper
    level: float | None = None  # place on the axis of a curve
    series: str = ""  # the curve, where there are several
    against: str = ""  # the arm that it is compared with (default: the first)
    test: str | None = None  # images to measure on, where each arm has its own


@dataclass(frozen=True)
class Study:
    """Arms that are compared with the first of them, unless they say otherwise.

    Its figure has points, curves over the level, the norms of A and m̃ over it, or a surface over series and level.
    """

    name: str
    title: str  # what is asked
    arms: tuple[Arm, ...]
    form: Literal["points", "curves", "norms", "surface"] = "points"
    seeds: int = 3  # runs of each arm, if the settings do not say

    @property
    def probes(self) -> bool:
        """Whether encoders are to be evaluated; norms are in the logs."""
        return self.form != "norms"

    def baseline(self, arm: Arm) -> Arm:
        """The arm that this one is compared with."""
        return next((other for other in self.arms if other.name == arm.against), self.arms[0])

    def only(self, names: Sequence[str]) -> "Study":
        """With the arms of these names, and those that they are compared with."""
        known = {arm.name: arm for arm in self.arms}
        for name in names:
            if name not in known:
                arms = ", ".join(f"'{arm}'" for arm in known)
                raise UserError(f"{self.name} has no arm '{name}'.{did_you_mean(name, known)} There are {arms}.")
        kept = {*names, *(self.baseline(known[name]).name for name in names)}
        return dataclasses.replace(self, arms=tuple(arm for arm in self.arms if arm.name in kept))


@dataclass(frozen=True)
class Asked:
    """What arms are made from: the settings of the study, and the shared recipe with nothing left open."""

    settings: StudySettings
    recipe: Recipe

    def noisy(self, level: float | None = None, **options: Any) -> dict[str, Any]:
        """Fields of an arm with noise of this level (default: `noise` of the settings) on the recipe's schedule."""
        positions, usual = self.recipe.positions, Positions()
        tied = options.get("covariance", "tied") == "tied"
        kept = {name: getattr(positions, name) for name in _KEPT if tied or name != "hold"}
        kept = {name: value for name, value in kept.items() if value != getattr(usual, name)}
        level = self.settings.noise if level is None else level
        return {"positions": {"kind": "stochastic", "noise_to_signal": level, **kept, **options}}


Builder = Callable[[Asked], Study]
