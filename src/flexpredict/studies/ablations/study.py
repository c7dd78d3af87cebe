"""Studies: arms that differ in the settings under study, each compared with a baseline arm."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import Recipe

SINCOS: dict[str, Any] = {"positions": {"kind": "sincos"}}
_KEPT = ("hold", "schedule", "final_level")  # settings of the recipe's positions that arms with tied noise keep


@dataclass(frozen=True)
class Arm:
    """The study's recipe with other `fields`. Positions and augmentation are replaced as a whole."""

    name: str  # in tables and figures
    fields: dict[str, Any]
    paper: float | None = None  # accuracy in the paper
    level: float | None = None  # x value in a curve
    series: str = ""  # name of its curve, if there are several
    against: str = ""  # name of the arm to compare with (default: the first)
    test: str | None = None  # images to measure on, if arms have their own


@dataclass(frozen=True)
class Study:
    """Arms that are compared with the first one, or with the arm in `against`.

    Its figure has points, curves over the level, the norms of A and m̃ over it, or a surface over series and level.
    """

    name: str
    title: str  # the question
    arms: tuple[Arm, ...]
    form: Literal["points", "curves", "norms", "surface"] = "points"
    seeds: int = 3  # runs of each arm, unless the settings say otherwise

    @property
    def probes(self) -> bool:
        """Whether encoders are evaluated; norms are in the logs."""
        return self.form != "norms"

    def baseline(self, arm: Arm) -> Arm:
        """The arm that this one is compared with."""
        return next((other for other in self.arms if other.name == arm.against), self.arms[0])

    def only(self, names: Sequence[str]) -> "Study":
        """The study with only the arms of these names and their baselines."""
        known = {arm.name: arm for arm in self.arms}
        for name in names:
            if name not in known:
                arms = ", ".join(f"'{arm}'" for arm in known)
                raise UserError(f"{self.name} has no arm '{name}'.{did_you_mean(name, known)} There are {arms}.")
        kept = {*names, *(self.baseline(known[name]).name for name in names)}
        return dataclasses.replace(self, arms=tuple(arm for arm in self.arms if arm.name in kept))


@dataclass(frozen=True)
class Asked:
    """The input for arms: settings of the study, and the shared recipe with all values settled."""

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
