"""Turns scenes that are already decided into images and masks: backdrop, parts, objects, sensor noise."""

import functools
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from flexpredict.data.scenes.objects import Objects, Tiles, paint_objects
from flexpredict.data.scenes.shapes import Floats
from flexpredict.randomness import normal, stream_key

Images = NDArray[np.uint8]  # B H W 3
Masks = NDArray[np.uint8]  # B H W

_CHUNK_PIXELS = 1 << 18  # painted at once, 64 scenes of 64 px: enough to keep numpy busy, few enough for the cache
_NOISE_STARTS = 1 << 16


@dataclass(frozen=True)
class Backdrops:
    """The backdrops of B scenes. Lengths are in shorter image sides, colors in gray levels; 0 for none."""

    color: Floats  # B 3
    slopes: Floats  # B 2 3: change of color down and across the image
    waves: Floats  # B W 3: cycles down, cycles across, phase; slow ones are clouds, fast ones stripes
    wave_colors: Floats  # B W 3
    checks: Floats  # B 3: periods down, periods across, phase
    check_color: Floats  # B 3
    horizon: Floats  # B: where the ground begins
    ground_color: Floats  # B 3: added below the horizon
    band_color: Floats  # B 3: of the bands on the ground, which narrow toward the horizon
    spots: Floats  # B S 3: y, x, radius
    spot_colors: Floats  # B S 3
    pan: Floats  # B 2: how far the camera has turned, down and across


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
    """Draw into `images`, and into `masks` (all zeros before): k for the k-th nearest object that is present."""
    step = max(1, _CHUNK_PIXELS // (masks.shape[1] * masks.shape[2]))
    for start in range(0, len(images), step):
        chunk = slice(start, start + step)
        _draw_chunk(scenes, chunk, images[chunk], masks[chunk])


def _draw_chunk(scenes: Scenes, chunk: slice, images: Images, masks: Masks) -> None:
    backdrops = scenes.backdrops
    backdrops = Backdrops(**{field.name: getattr(backdrops, field.name)[chunk] for field in fields(Backdrops)})
    canvas = paint_backdrops(backdrops, (masks.shape[1], masks.shape[2]))
    if scenes.parts is not None:
        # Parts are behind all objects, not only behind their own, so that no part hides anything of an object.
        _lay(scenes.parts, scenes, chunk, canvas, masks)
    _lay(scenes.objects, scenes, chunk, canvas, masks)

    noise = _noise_windows(canvas[0].size)[(scenes.noise_start[chunk] * _NOISE_STARTS).astype(np.int64)]
    noise *= scenes.noise_level[chunk, None].astype(np.float32)
    canvas += noise.reshape(canvas.shape)
    canvas += 0.5
    np.clip(canvas, 0, 255, out=canvas)
    images[...] = canvas.astype(np.uint8).transpose(0, 2, 3, 1)


def _lay(things: Objects, scenes: Scenes, chunk: slice, canvas: NDArray[np.float32], masks: Masks) -> None:
    """Paint all objects, or the parts of all objects, onto the canvas, from far to near."""
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
    """... H W -> ... rows columns S S: every position of a tile of this size, writable."""
    return sliding_window_view(canvas, tiles.keep.shape[1:], axis=(-2, -1), writeable=True)


def paint_backdrops(backdrops: Backdrops, size: tuple[int, int]) -> NDArray[np.float32]:
    """B 3 H W, in gray levels, not yet limited to 0 … 255.

    Every feature is a sum of products (curve over the rows) × (curve over the columns) × (color), so that a whole
    backdrop is one small matrix product instead of a dozen passes over its pixels.
    """
    b, (height, width) = backdrops, size
    y = (np.arange(height) + 0.5) / min(size) + b.pan[:, :1]  # B H
    x = (np.arange(width) + 0.5) / min(size) + b.pan[:, 1:]  # B W
    one_y, one_x = np.ones_like(y)[:, None], np.ones_like(x)[:, None]

    # cos(d + a) = cos d cos a - sin d sin a: a wave in any direction is two products.
    down = 2 * np.pi * (b.waves[..., 0, None] * y[:, None] + b.waves[..., 2, None])  # B W height
    across = 2 * np.pi * b.waves[..., 1, None] * x[:, None]  # B W width
    check_down = _square_wave(b.checks[:, 0, None] * y + b.checks[:, 2, None])[:, None]
    check_across = _square_wave(b.checks[:, 1, None] * x + b.checks[:, 2, None])[:, None]
    below = (y - b.horizon[:, None])[:, None]
    ground = np.clip(below * min(size) + 0.5, 0, 1)
    bands = ground * np.cos(2.5 / (np.maximum(below, 0) + 0.08))
    spot_down = np.exp(-(((y[:, None] - b.spots[..., 0, None]) / b.spots[..., 2, None]) ** 2))  # B S height
    spot_across = np.exp(-(((x[:, None] - b.spots[..., 1, None]) / b.spots[..., 2, None]) ** 2))

    terms = [
        (b.color[:, None], one_y, one_x),
        (b.slopes[:, :1], y[:, None], one_x),
        (b.slopes[:, 1:], one_y, x[:, None]),
        (b.wave_colors, np.cos(down), np.cos(across)),
        (-b.wave_colors, np.sin(down), np.sin(across)),
        (b.check_color[:, None], check_down, check_across),
        (b.ground_color[:, None], ground, one_x),
        (b.band_color[:, None], bands, one_x),
        (b.spot_colors, spot_down, spot_across),
    ]
    # B terms 3, B terms H, B terms W
    colors, rows, columns = (np.concatenate(parts, axis=1, dtype=np.float32) for parts in zip(*terms, strict=True))
    colored_rows = colors.transpose(0, 2, 1)[:, :, None] * rows.transpose(0, 2, 1)[:, None]  # B 3 H terms
    painted: NDArray[np.float32] = np.matmul(colored_rows.reshape(len(y), 3 * height, -1), columns)
    return painted.reshape(-1, 3, height, width)


def _square_wave(cycles: Floats) -> Floats:
    """Between -1 and 1, with edges soft enough not to alias."""
    return np.asarray(np.clip(4 * np.cos(2 * np.pi * cycles), -1, 1))


@functools.lru_cache(maxsize=2)
def _noise_windows(count: int) -> NDArray[np.float32]:
    """Standard normal numbers, starts × count, all windows of one list: fresh ones would cost more than the scene."""
    key = torch.tensor([stream_key(0, "scenes/noise")])
    numbers = normal(key, _NOISE_STARTS + count - 1)[0].numpy()
    return sliding_window_view(numbers, count)
