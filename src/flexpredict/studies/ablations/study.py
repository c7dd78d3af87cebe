"""What a study is: arms that differ in what is asked, each compared with one of them."""

from dataclasses import dataclass
from typing import Any, Literal


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
        axis: what the level is.
        seeds: runs of each arm, unless someone says otherwise.
        scene_tasks: whether the number of objects and the distance of the nearest are asked too.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    form: Literal["points", "curves", "norms", "surface"] = "points"
    axis: str = "noise level ‖A n‖ / ‖ψ‖"
    seeds: int = 3
    scene_tasks: bool = False

    @property
    def probes(self) -> bool:
        """Whether encoders are to be evaluated; norms are in the logs."""
        return self.form != "norms"

    def baseline(self, arm: Arm) -> Arm:
        """The arm that this one is compared with."""
        return next((other for other in self.arms if other.name == arm.against), self.arms[0])
