"""Reads what a name such as `scenes:5000,size=64,where=0.5` asks of the built-in scenes."""

from dataclasses import dataclass, replace
from typing import Any

from flexpredict.named_options import number, parse_options, whole_number

IMAGE_OPTIONS = ("count", "size", "seed", "split", "first", "where")


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
    fewest = {"count": 1, "frames": fewest_frames}
    asked: dict[str, Any] = parse_options(name.partition(":")[2], known, name, first="count")
    for key, value in asked.items():
        if key == "where":
            asked[key] = number(value, key, name)
        elif key != "split":
            asked[key] = whole_number(value, key, name, fewest.get(key, 0))
    return replace(usual, **asked)
