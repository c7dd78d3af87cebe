"""Reads what a name such as `scenes:5000,size=64,where=0.5` asks of the built-in scenes."""

from dataclasses import dataclass, replace
from typing import Any

from flexpredict.errors import UserError, did_you_mean


@dataclass(frozen=True)
class SceneOptions:
    """Every option there is: images, videos and tasks each take some of them."""

    count: int
    size: int = 64
    seed: int = 0
    split: str = "train"
    first: int = 0
    frames: int = 16
    where: float | None = None


def read_options(name: str, usual: SceneOptions, known: tuple[str, ...], *, fewest_frames: int = 1) -> SceneOptions:
    """The usual options, except for those that the name sets. known: those it may set."""
    asked: dict[str, Any] = {}
    for position, option in enumerate(filter(None, name.partition(":")[2].split(","))):
        key, equals, value = option.partition("=")
        if not equals and position == 0:
            key, value = "count", option
        if key not in known:
            raise UserError(
                f"'{option}' in {name} is not an option of the scenes here.{did_you_mean(key, known)} Options are"
                f" {', '.join(known)}, as in scenes:5000,size=64."
            )
        if key == "split":
            asked[key] = value
        elif key == "where":
            asked[key] = _number(name, value)
        else:
            fewest = {"count": 1, "frames": fewest_frames}.get(key, 0)
            if not value.isdecimal() or int(value) < fewest:
                raise UserError(f"{key} in {name} is '{value}'; it must be a whole number of at least {fewest}.")
            asked[key] = int(value)
    return replace(usual, **asked)


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UserError(f"where in {name} is '{value}'; it must be a number from 0 to 1.") from None
