"""The built-in scenes: an endless data set of little worlds, so that everything can be tried offline.

Up to four shaded objects stand at different distances in front of a backdrop. The class of a scene is
the shape of its objects. Seeing one object therefore tells what a hidden one looks like, but not where it is.
Colors, light, backdrop, number of objects and distances say nothing about the class.
How hard the scenes are is set at the top of `worlds.py`.

With `where`, every object has a part. Which part depends only on the object's kind; `where` sets how far the part
strays from the top of its object. Nothing else about a scene depends on `where`, so scenes can be compared in pairs.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from flexpredict.data.scenes.drawing import draw
from flexpredict.data.scenes.shapes import SHAPES
from flexpredict.data.scenes.worlds import MAX_OBJECTS, NEAREST, Worlds, at_frame, sample_worlds
from flexpredict.errors import UserError, did_you_mean
from flexpredict.named_options import number, parse_options, whole_number
from flexpredict.randomness import sample_keys, stream_key

Value = TypeVar("Value", np.uint8, np.float32)

CLASSES: tuple[str, ...] = tuple(SHAPES)
SPLITS = ("train", "test")

_DISTANCE_BINS = 6
_SMALLEST_SIDE = 16
_BLOCK = 512  # scenes sampled at once: bounds the memory of the candidates for places
IMAGE_OPTIONS = ("count", "size", "seed", "split", "first", "where")


@dataclass(frozen=True)
class SceneBatch:
    """B scenes and their ground truth."""

    images: NDArray[np.uint8]  # B H W 3
    classes: NDArray[np.int64]  # B: into CLASSES
    counts: NDArray[np.int64]  # B: number of objects, each visible at least in part
    nearest: NDArray[np.float32]  # B: distance of the nearest object
    masks: NDArray[np.uint8]  # B H W: 0 for the backdrop, k for the k-th nearest object
    kinds: NDArray[np.uint8]  # B K+1: 0 for the backdrop, 1 + its class for the k-th nearest object
    distances: NDArray[np.float32]  # B K+1: 0 for the backdrop, the distance of the k-th nearest object

    def class_masks(self) -> NDArray[np.uint8]:
        """B H W: 0 for the backdrop, 1 + its class for an object."""
        return _per_pixel(self.kinds, self.masks)

    def depth_maps(self) -> NDArray[np.float32]:
        """B H W: the distance of the object that a pixel shows, 0 for the backdrop."""
        return _per_pixel(self.distances, self.masks)


@dataclass(frozen=True)
class VideoBatch:
    """B videos of T frames."""

    images: NDArray[np.uint8]  # B T H W 3
    masks: NDArray[np.uint8]  # B T H W: 0 for the backdrop; an object keeps its number through all frames


def draw_scenes(
    indices: NDArray[np.int64],
    *,
    size: int | tuple[int, int] = 64,
    seed: int = 0,
    split: str = "train",
    where: float | None = None,
) -> SceneBatch:
    """Scene i of (seed, split), the same in every batch.

    size: one side, or height and width. where: gives objects a part each, always on top (0) to anywhere around (1).
    """
    if split not in SPLITS:
        hint = did_you_mean(split, SPLITS)
        raise UserError(f"The built-in scenes have no split '{split}'.{hint} Use one of: {', '.join(SPLITS)}.")
    height, width = _height_and_width(size)
    indices = _checked(indices)
    images = np.empty((len(indices), height, width, 3), np.uint8)
    masks = np.zeros((len(indices), height, width), np.uint8)
    classes, counts = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
    nearest = np.empty(len(indices), np.float32)
    kinds = np.zeros((len(indices), MAX_OBJECTS + 1), np.uint8)
    distances = np.zeros(kinds.shape, np.float32)
    for start in range(0, len(indices), _BLOCK):
        block = slice(start, start + _BLOCK)
        worlds = _worlds(indices[block], (height, width), seed, split, where)
        draw(worlds.scenes, images[block], masks[block])
        classes[block], nearest[block] = worlds.classes, worlds.nearest
        present = worlds.scenes.present
        counts[block] = present.sum(axis=1)
        scene, place = np.nonzero(present)
        number = np.cumsum(present, axis=1)[scene, place]  # as in the mask: objects that are left out have none
        kinds[block][scene, number] = 1 + worlds.scenes.objects.kind[scene, place]
        distances[block][scene, number] = worlds.distance[scene, place]
    return SceneBatch(images, classes, counts, nearest, masks, kinds, distances)


def scene_answers(
    indices: NDArray[np.int64], *, size: int = 64, seed: int = 0, split: str = "train"
) -> dict[str, NDArray[np.int64]]:
    """Labels for other tasks than the class, without drawing the scenes: a class number for each scene.

    count: objects, less one; distance: of the nearest object, in bins; localization: the quarter of the image in
    which the center of the nearest object is, 0 for top left, then row by row.
    """
    blocks = [indices[start : start + _BLOCK] for start in range(0, len(indices), _BLOCK)]
    worlds = [_worlds(block, (size, size), seed, split, None) for block in blocks]
    lower, right = np.concatenate([world.scenes.objects.center[:, 0] > 0.5 for world in worlds]).T
    return {
        "count": np.concatenate([world.scenes.present.sum(axis=1) for world in worlds]) - 1,
        "distance": nearest_bins(np.concatenate([world.nearest for world in worlds])),
        "localization": 2 * lower.astype(np.int64) + right,
    }


def draw_videos(
    indices: NDArray[np.int64],
    *,
    frames: int = 16,
    size: int | tuple[int, int] = 64,
    seed: int = 0,
    where: float | None = None,
) -> VideoBatch:
    """Video i of the seed: a scene whose objects travel, turn and pass each other while the camera turns a little.

    Frame t does not depend on how many frames are drawn. All objects are visible in the first frame.
    """
    if frames < 1:
        raise UserError(f"A video of {frames} frames cannot be drawn. Ask for 1 or more.")
    height, width = _height_and_width(size)
    indices = _checked(indices)
    worlds = _worlds(indices, (height, width), seed, "video", where)
    images = np.empty((len(indices), frames, height, width, 3), np.uint8)
    masks = np.zeros((len(indices), frames, height, width), np.uint8)
    for frame in range(frames):
        draw(at_frame(worlds, frame, (height, width)), images[:, frame], masks[:, frame])
    return VideoBatch(images, masks)


def nearest_bins(nearest: ArrayLike) -> NDArray[np.int64]:
    """Distance of the nearest object in six equally frequent bins, 0 the nearest (as CLEVR's distance task).

    A bin begins at its threshold: 2.22, 2.53, 2.85, 3.17 and 3.48.
    """
    thresholds = np.linspace(*NEAREST, _DISTANCE_BINS + 1)[1:-1].astype(np.float32)
    return np.searchsorted(thresholds, np.asarray(nearest, np.float32), side="right").astype(np.int64)


def _per_pixel(values: NDArray[Value], masks: NDArray[np.uint8]) -> NDArray[Value]:
    """The value of the object at each pixel. values: B K+1, masks: B H W -> B H W."""
    found: NDArray[Value] = values[np.arange(len(masks))[:, None, None], masks]
    return found


def _worlds(indices: NDArray[np.int64], size: tuple[int, int], seed: int, stream: str, where: float | None) -> Worlds:
    if where is not None and not 0 <= where <= 1:
        raise UserError(f"where is {where:g}; use a number from 0 (parts always on top of objects) to 1 (anywhere).")
    keys = sample_keys(stream_key(seed, f"scenes/{stream}"), torch.from_numpy(indices))
    return sample_worlds(keys, size, where)


def _height_and_width(size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < _SMALLEST_SIDE:
        raise UserError(
            f"Scenes of {height}×{width} pixels are too small to show anything. Use {_SMALLEST_SIDE} pixels or more."
        )
    return height, width


def _checked(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    indices = np.asarray(indices)
    if indices.ndim != 1 or not (np.issubdtype(indices.dtype, np.integer) or indices.size == 0):
        raise UserError(
            f"Scenes are drawn for a list of whole numbers, not for an array of shape {indices.shape} and type"
            f" {indices.dtype}. Give for example np.arange(64)."
        )
    return np.ascontiguousarray(indices, np.int64)


@dataclass(frozen=True)
class SceneOptions:
    """All options of scenes; images, videos and tasks each take some of them."""

    count: int
    size: int = 64
    seed: int = 0
    split: str = "train"
    first: int = 0
    frames: int = 16
    where: float | None = None


def read_options(name: str, usual: SceneOptions, known: tuple[str, ...], *, fewest_frames: int = 1) -> SceneOptions:
    """The usual options, overridden by those in the name. known: the options that the name may set."""
    fewest = {"count": 1, "frames": fewest_frames}
    asked: dict[str, Any] = parse_options(name.partition(":")[2], known, name, first="count")
    for key, value in asked.items():
        if key == "where":
            asked[key] = number(value, key, name)
        elif key != "split":
            asked[key] = whole_number(value, key, name, fewest.get(key, 0))
    return replace(usual, **asked)
