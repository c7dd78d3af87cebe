"""Videos with an index mask for every frame: those of a DAVIS tree, or moving built-in scenes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from flexpredict.data.decoding import Encoded, UnreadableImage, decode
from flexpredict.data.scenes.options import SceneOptions, read_options
from flexpredict.data.scenes.scenes import draw_videos
from flexpredict.errors import UserError
from flexpredict.evaluation.index_masks import VOID, Mask, read_mask

_SCENES = SceneOptions(count=8, size=96, frames=16)
FEWEST_FRAMES = 3  # the first and the last are not scored
_MOST_OBJECTS = 100  # more numbers than this are the grays of a picture


@dataclass(frozen=True)
class Video:
    """T frames of H x W pixels."""

    name: str
    size: tuple[int, int]  # H W
    frame_names: Sequence[str]  # T: "00000", "00001" ...
    frames: Sequence[Encoded]  # T; empty where only masks are needed
    masks: Sequence[Path | Mask]  # T
    objects: tuple[int, ...]  # numbers of the objects in the first mask
    foreground_only: bool = False  # all objects are one, as in DAVIS 2016

    def frame(self, number: int, size: tuple[int, int]) -> Tensor:
        """3 H W uint8, resized to this height and width."""
        encoded = self.frames[number]
        name = encoded if isinstance(encoded, str) else f"{self.name}, frame {self.frame_names[number]}"
        try:
            return decode(encoded, name, size, lambda height, width: (0, 0, width, height))
        except UnreadableImage as error:
            raise UserError(f"A frame of sequence {self.name} cannot be read: {error}. Copy it again.") from error

    def mask(self, number: int) -> Mask:
        return _loaded(self.masks[number], self.foreground_only)


def open_scene_videos(data: str) -> list[Video]:
    """data: `scenes`, or `scenes:8,size=96,frames=16,seed=0,where=0.5`."""
    known = ("count", "size", "frames", "seed", "where")
    asked = read_options(data, _SCENES, known, fewest_frames=FEWEST_FRAMES)
    drawn = draw_videos(
        np.arange(asked.count), frames=asked.frames, size=asked.size, seed=asked.seed, where=asked.where
    )
    names = [f"{frame:05d}" for frame in range(asked.frames)]
    size = (asked.size, asked.size)
    return [
        Video(f"scene-{number:03d}", size, names, list(images), list(masks), objects_of(masks[0], f"scene {number}"))
        for number, (images, masks) in enumerate(zip(drawn.images, drawn.masks, strict=True))
    ]


def objects_of(first_mask: Path | Mask, name: str, foreground_only: bool = False) -> tuple[int, ...]:
    """Numbers of the objects to follow. name: of the mask, for messages."""
    numbers = np.unique(_loaded(first_mask, foreground_only)).tolist()
    objects = tuple(number for number in numbers if number not in (0, VOID))
    if not objects:
        hint = " It holds only 0 and 255, as in DAVIS 2016: use year=2016." if VOID in numbers else ""
        raise UserError(f"There is no object in the first mask of {name}, so there is nothing to follow.{hint}")
    if len(objects) > _MOST_OBJECTS:
        raise UserError(
            f"The first mask of {name} holds {len(objects)} different numbers, so it is a grayscale picture rather "
            "than a mask that numbers objects. Use the masks as they were published, not converted."
        )
    return objects


def _loaded(mask: Path | Mask, foreground_only: bool) -> Mask:
    numbers = read_mask(mask) if isinstance(mask, Path) else mask
    return np.minimum(numbers, 1) if foreground_only else numbers
