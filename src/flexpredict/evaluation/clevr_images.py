"""Images of CLEVR with VTAB's labels: how many objects there are, and how far away the nearest is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flexpredict.data.scenes.scenes import SceneOptions, draw_scenes, nearest_bins, read_options
from flexpredict.data.sources.folders import FolderSource
from flexpredict.data.sources.image_source import ArraySource, ImageSource
from flexpredict.data.sources.listing import Names
from flexpredict.errors import UserError

ClevrTask = Literal["count", "dist"]
Split = Literal["train", "test"]
TASKS: tuple[ClevrTask, ...] = ("count", "dist")

# Depth of the nearest object, in the scene file's `pixel_coords`: six bins, each with its upper edge.
_DEPTHS = np.array([8.0, 8.5, 9.0, 9.5, 10.0], np.float32)
_DIST_CLASSES = ("to 8.0", "8.0 to 8.5", "8.5 to 9.0", "9.0 to 9.5", "9.5 to 10.0", "beyond 10.0")
_SCENES = 5000


def clevr_sources(data: str, split: Split, tasks: Sequence[ClevrTask] = TASKS) -> list[ImageSource]:
    """For each task, the images with its labels: of CLEVR_v1.0 (with val as the test split), or scenes."""
    if data == "scenes" or data.startswith("scenes:"):
        return _scenes(data, split, tasks)
    folder, name = Path(data).expanduser(), "train" if split == "train" else "val"
    path = folder / "scenes" / f"CLEVR_{name}_scenes.json"
    images = folder / "images" / name
    for needed in (path, images):
        if not needed.exists():
            raise UserError(f"{folder} is not CLEVR's folder: there is no {needed}. Give the unpacked CLEVR_v1.0.")
    try:
        scenes: list[dict[str, Any]] = json.loads(path.read_bytes())["scenes"]
        labels_of = {scene["image_filename"]: [_label(scene, task) for task in tasks] for scene in scenes}
        missing = [file for file in labels_of if not (images / file).is_file()]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(
            f"{path} is not a complete file of CLEVR scenes ({type(error).__name__}: {error}). Each scene needs its "
            "image_filename and objects with pixel_coords, the third of which is the depth."
        ) from error
    if missing:
        raise UserError(
            f"{path} names {len(missing)} images that are not in {images}, for example {missing[0]}. Unpack all of "
            "CLEVR_v1.0."
        )
    if not labels_of:
        raise UserError(f"{path} has no scenes.")
    files = sorted(labels_of)
    sources: list[ImageSource] = []
    for number, task in enumerate(tasks):
        source = FolderSource(name=str(images), names=Names.of(map(str.encode, files)))
        source.classes, source.labels = _numbered([labels_of[file][number] for file in files], task)
        sources.append(source)
    return sources


def _label(scene: dict[str, Any], task: ClevrTask) -> int:
    objects = scene["objects"]
    if task == "count":
        return len(objects)
    return depth_bin([float(thing["pixel_coords"][2]) for thing in objects])


def depth_bin(depths: Sequence[float]) -> int:
    """VTAB's bin of the nearest object, in float32 like theirs; a depth on an edge belongs to the nearer bin."""
    return int(np.searchsorted(_DEPTHS, np.float32(min(depths)), side="left"))


def _numbered(labels: list[int], task: ClevrTask) -> tuple[tuple[str, ...], Tensor]:
    if task == "dist":
        return _DIST_CLASSES, torch.tensor(labels)
    # Classes have names, because a number may occur in one split and not in the other.
    counts, numbers = torch.unique(torch.tensor(labels), return_inverse=True)
    return tuple(f"{count} objects" for count in counts.tolist()), numbers


def _scenes(data: str, split: Split, tasks: Sequence[ClevrTask]) -> list[ImageSource]:
    """Draw scenes, or scenes:3000,size=64,where=0.5: that many for training, and a fifth as many for testing."""
    asked = read_options(data, SceneOptions(count=_SCENES), ("count", "size", "where"))
    number = asked.count if split == "train" else max(1, asked.count // 5)
    drawn = draw_scenes(np.arange(number), size=asked.size, split=split, where=asked.where)
    images = torch.from_numpy(drawn.images)
    bins = tuple(f"bin {number}" for number in range(len(_DIST_CLASSES)))
    labeled = {
        "count": _numbered(drawn.counts.tolist(), "count"),
        "dist": (bins, torch.from_numpy(nearest_bins(drawn.nearest))),
    }
    return [ArraySource(f"{data} ({split})", images, *labeled[task]) for task in tasks]
