"""Turns scenes that are already decided into images and masks: backdrop, parts, objects, sensor noise."""

import functools
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from flexpredict.data.scenes.backdrops import Backdrops, paint_backdrops
from flexpredict.data.scenes.objects import Objects, Tiles, paint_objects
from flexpredict.randomness import normal, stream_key

Floats = NDArray[np.float64]
Images = NDArray[np.uint8]  # B H W 3
Masks = NDArray[np.uint8]  # B H W

_CHUNK_PIXELS = 1 << 18  # painted at once, 64 scenes of 64 px: enough to keep numpy busy, few enough for the cache
_NOISE_STARTS = 1 << 16


@dataclass(frozen=True)
class Scenes:
    """B scenes of up to K objects each."""

    backdrops: Backdrops  # B ...
    objects: Objects  # B K ..., nearest first
    present: NDArray[np.bool_]  # B K: False leaves the object out
    light: Floats  # B 2: the unit vector (y, x) toward the lamp
    noise_start: Floats  # B, in [0, 1): which noise
    noise_level: Floats  # B: standard deviation in gray levels
    parts: Objects | None = None  # B K ..., one of each object


def draw(scenes: Scenes, images: Images, masks: Masks) -> None:
    """Into `images`, and into `masks`, which come as zeros: k for the k-th nearest object that is present."""
    step = max(1, _CHUNK_PIXELS // (masks.shape[1] * masks.shape[2]))
    for start in range(0, len(images), step):
        chunk = slice(start, start + step)
        _draw_chunk(scenes, chunk, images[chunk], masks[chunk])


def _draw_chunk(scenes: Scenes, chunk: slice, images: Images, masks: Masks) -> None:
    backdrops = scenes.backdrops
    backdrops = Backdrops(**{field.name: getattr(backdrops, field.name)[chunk] for field in fields(Backdrops)})
    canvas = paint_backdrops(backdrops, (masks.shape[1], masks.shape[2]))
    if scenes.parts is not None:
        # Behind all objects, not only their own: whatever can be seen of an object, no part hides it.
        _lay(scenes.parts, scenes, chunk, canvas, masks)
    _lay(scenes.objects, scenes, chunk, canvas, masks)

    noise = _noise_windows(canvas[0].size)[(scenes.noise_start[chunk] * _NOISE_STARTS).astype(np.int64)]
    noise *= scenes.noise_level[chunk, None].astype(np.float32)
    canvas += noise.reshape(canvas.shape)
    canvas += 0.5
    np.clip(canvas, 0, 255, out=canvas)
    images[...] = canvas.astype(np.uint8).transpose(0, 2, 3, 1)


def _lay(things: Objects, scenes: Scenes, chunk: slice, canvas: NDArray[np.float32], masks: Masks) -> None:
    """All objects, or the parts of all objects, from far to near, onto what is there."""
    present = scenes.present[chunk]
    layer, scene = np.nonzero(present.T)  # of each object; nearest layer first
    things = Objects(**{field.name: getattr(things, field.name)[chunk][scene, layer] for field in fields(Objects)})
    label = np.cumsum(present, axis=1)[scene, layer].astype(np.uint8)
    tiles = [
        (same_size, _windows(canvas, same_size), _windows(masks, same_size))
        for same_size in paint_objects(things, scenes.light[chunk][scene], (masks.shape[1], masks.shape[2]))
    ]
    # A scene has one object in a layer, so that the tiles of a layer can be laid all at once.
    for this_layer in reversed(range(present.shape[1])):
        for same_size, canvas_windows, mask_windows in tiles:
            which = slice(*np.searchsorted(layer[same_size.which], (this_layer, this_layer + 1)))
            at, (row, column) = same_size.which[which], same_size.corner[which].T
            behind = canvas_windows[scene[at], :, row, column]  # n 3 S S
            behind *= same_size.keep[which, None]
            behind += same_size.paint[which]
            canvas_windows[scene[at], :, row, column] = behind
            labels = mask_windows[scene[at], row, column]  # n S S
            np.copyto(labels, label[at, None, None], where=same_size.inside[which])
            mask_windows[scene[at], row, column] = labels


def _windows(canvas: NDArray[Any], tiles: Tiles) -> NDArray[Any]:
    """... H W -> ... rows columns S S: every place where a tile of this size can lie, writable."""
    return sliding_window_view(canvas, tiles.keep.shape[1:], axis=(-2, -1), writeable=True)


@functools.lru_cache(maxsize=2)
def _noise_windows(count: int) -> NDArray[np.float32]:
    """Standard normal numbers, starts × count, all windows of one list: fresh ones would cost more than the scene."""
    key = torch.tensor([stream_key(0, "scenes/noise")])
    numbers = normal(key, _NOISE_STARTS + count - 1)[0].numpy()
    return sliding_window_view(numbers, count)
