"""Paints the objects of the built-in scenes: outline, relief, bands, light and shadow.

An object is painted in a square tile just large enough for it, all objects with the same tile size at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexpredict.data.scenes.shapes import SPAN, Floats, distance_tables

Pixels = NDArray[np.float32]  # n S S

AMBIENT, DIFFUSE = 0.5, 0.62  # light from everywhere; light from the lamp on a surface that faces it
LAMP_HEIGHT = 0.75  # z of the unit vector toward the lamp: low enough that slopes show
SHADOW_WIDTH, SHADOW_DARKNESS = 0.3, 0.55  # in object radii; the share of light it takes away at the outline
BAND_SHARPNESS = 3.0  # how steeply bands begin and end: soft enough not to alias at 64 px
_TILE_SIZES = 8  # more sizes waste fewer pixels, fewer sizes call numpy less often


@dataclass(frozen=True)
class Objects:
    """N objects. Lengths are in shorter image sides, colors in gray levels."""

    kind: NDArray[np.int64]  # N: which shape
    center: Floats  # N 2: y, x
    radius: Floats  # N
    angle: Floats  # N
    colors: Floats  # N 2 3: of the body and of its bands
    banded: NDArray[np.bool_]  # N: whether it has a pattern
    bands: Floats  # N 3: angle, cycles a radius, phase
    bevel: Floats  # N: how far in from its outline an object rises, as a share of its deepest point; 1 is a cushion
    gloss: Floats  # N: gray levels of the highlight


@dataclass(frozen=True)
class Tiles:
    """n painted objects whose tiles have the same side S."""

    which: NDArray[np.int64]  # n: the objects, ascending
    corner: NDArray[np.int64]  # n 2: the pixel (row, column) where the tile begins
    paint: Pixels  # n 3 S S: color × coverage
    keep: Pixels  # n S S: the share of the background that shows
    inside: NDArray[np.bool_]  # n S S


def paint_objects(objects: Objects, light: Floats, size: tuple[int, int]) -> Iterator[Tiles]:
    """Paint all objects. light: N 2, the unit vector (y, x) toward the lamp. size: height and width of the image."""
    short = min(size)
    step = -(-short // _TILE_SIZES)
    needed = 2 * SPAN * objects.radius * short + 2
    sides = np.minimum(np.ceil(needed / step) * step, short).astype(np.int64)
    for side in np.unique(sides):
        which = np.flatnonzero(sides == side)
        some = Objects(**{field.name: getattr(objects, field.name)[which] for field in fields(Objects)})
        yield _paint_tiles(which, some, light[which], int(side), size)


def _paint_tiles(which: NDArray[np.int64], o: Objects, light: Floats, side: int, size: tuple[int, int]) -> Tiles:
    short = min(size)
    in_pixels = o.radius * short
    corner = np.clip(np.round(o.center * short - side / 2), 0, np.array(size) - side).astype(np.int64)
    # Pixel centers as seen from the object's, in its radii.
    offset = (corner[:, :, None] + np.arange(side) + 0.5 - o.center[:, :, None] * short) / in_pixels[:, None, None]
    dy, dx = offset[:, 0], offset[:, 1]  # n S

    distance = _distance_to_outline(o, dy, dx, short)
    facing = _facing(o, distance, light, in_pixels)
    banded = _bands(o, dy, dx)
    cover = distance * _each(in_pixels)
    cover += 0.5
    _limit(cover)
    inside = cover > 0.5
    away = _outer(-light[:, :1] * dy, -light[:, 1:] * dx)  # a shadow falls on the side away from the lamp only
    np.clip(away, 0, SHADOW_DARKNESS, out=away)
    near = _limit(distance * (1 / SHADOW_WIDTH) + 1)
    near *= near
    near *= away
    keep = (1 - near) * (1 - cover)

    highlight = facing**2
    for _ in range(3):
        highlight *= highlight  # facing^16
    highlight *= cover
    highlight *= _each(o.gloss)
    cover *= AMBIENT + DIFFUSE * facing
    paint = np.empty((len(which), 3, side, side), np.float32)
    for channel in range(3):
        body, band = o.colors[:, 0, channel], o.colors[:, 1, channel]
        color = banded * _each(band - body)
        color += _each(body)
        color *= cover
        np.add(color, highlight, out=paint[:, channel])
    return Tiles(which, corner, paint, keep, inside)


def _distance_to_outline(o: Objects, dy: Floats, dx: Floats, short: int) -> Pixels:
    """Distance in object radii, positive inside, from the nearest cell of the shape's table."""
    resolution = min(1 << (4 * short - 1).bit_length(), 1024)  # several cells a pixel
    tables, _ = distance_tables(resolution)
    cells = resolution / (2 * SPAN)
    middle = np.full(len(dy), resolution / 2)
    column, row = _turned(dy, dx, o.angle, cells, middle, middle)
    index = np.clip(row, 0, resolution - 1, out=row).astype(np.int32)
    index *= resolution
    index += np.clip(column, 0, resolution - 1, out=column).astype(np.int32)
    index += (o.kind * resolution**2).astype(np.int32)[:, None, None]
    return tables.reshape(-1).take(index)


def _facing(o: Objects, distance: Pixels, light: Floats, in_pixels: Floats) -> Pixels:
    """Cosine between the surface normal and the direction of the lamp, 0 where it faces away.

    The surface rises from the outline as a quarter circle over the width of the bevel, and is flat from there.
    """
    _, deepest = distance_tables(256)
    bevel = o.bevel * deepest[o.kind]
    rise = _limit(distance * _each(1 / bevel))
    height = np.sqrt(rise * (2 - rise))
    height *= _each(bevel * in_pixels / 2)  # halved, because slopes are differences over two pixels
    slope_y, slope_x = np.empty_like(height), np.empty_like(height)
    np.subtract(height[:, 2:], height[:, :-2], out=slope_y[:, 1:-1])
    np.subtract(height[:, :, 2:], height[:, :, :-2], out=slope_x[:, :, 1:-1])
    slope_y[:, [0, -1]], slope_x[:, :, [0, -1]] = slope_y[:, [1, -2]], slope_x[:, :, [1, -2]]
    sideways = light * math.sqrt(1 - LAMP_HEIGHT**2)
    facing = LAMP_HEIGHT - slope_y * _each(sideways[:, 0])
    facing -= slope_x * _each(sideways[:, 1])
    facing /= np.sqrt(slope_y * slope_y + slope_x * slope_x + 1)
    toward: Pixels = np.maximum(facing, 0, out=facing)
    return toward


def _bands(o: Objects, dy: Floats, dx: Floats) -> Pixels:
    """Share of the color of the bands: a triangle wave between -1 and 1, made steeper and cut off."""
    angle, cycles, phase = o.bands.T
    wave, _ = _turned(dy, dx, angle, cycles, phase, phase)
    wave -= np.floor(wave)
    wave = 4 * np.abs(wave - 0.5) - 1
    return _limit(BAND_SHARPNESS * wave + 0.5) * _each(o.banded)


def _turned(
    dy: Floats, dx: Floats, angle: Floats, scale: Floats | float, x_shift: Floats, y_shift: Floats
) -> tuple[Pixels, Pixels]:
    """Coordinates x and y along axes turned by `angle`, times `scale`, plus a shift. dy, dx: n S; the others: n."""
    cos, sin = (np.cos(angle) * scale)[:, None], (np.sin(angle) * scale)[:, None]
    return _outer(sin * dy, cos * dx + x_shift[:, None]), _outer(cos * dy, y_shift[:, None] - sin * dx)


def _outer(down: Floats, across: Floats) -> Pixels:
    """n S, n S -> n S S: the sum of what a row and what a column contributes."""
    return down.astype(np.float32)[:, :, None] + across.astype(np.float32)[:, None, :]


def _each(number: NDArray[Any]) -> Pixels:
    """One number per object, n -> n 1 1."""
    return number.astype(np.float32)[:, None, None]


def _limit(x: Pixels) -> Pixels:
    return np.clip(x, 0, 1, out=x)
