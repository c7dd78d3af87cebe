"""The ten shapes of the built-in scenes, and those of their parts, as tables of the distance to the outline.

A shape is a function (x, y) -> distance to its outline, positive inside. Objects look the distance up instead of
computing it, so that objects of all shapes are painted at once.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Shape = Callable[[Floats, Floats], Floats]

# A table covers [-SPAN, SPAN]² in units of the object's radius: the largest shape and the shadow around it.
SPAN = 1.35
# All shapes have the area of a ball of this radius, or else the number of object pixels would tell the class.
BALL_RADIUS = 0.74
_DIRECTIONS = 360


def _ball(x: Floats, y: Floats) -> Floats:
    return 1 - np.hypot(x, y)


def _box(x: Floats, y: Floats) -> Floats:
    return _rounded_box(x, y, 0.85, 0.85, corner=0.12)


def _ring(x: Floats, y: Floats) -> Floats:
    return 0.19 - np.abs(np.hypot(x, y) - 0.8)


def _star(x: Floats, y: Floats) -> Floats:
    return _pointed(x, y, tips=5, notch=0.46)


def _cross(x: Floats, y: Floats) -> Floats:
    return _union(_rounded_box(x, y, 1.0, 0.3, corner=0.08), _rounded_box(x, y, 0.3, 1.0, corner=0.08))


def _crescent(x: Floats, y: Floats) -> Floats:
    disc, bite = 1 - np.hypot(x, y), 0.78 - np.hypot(x - 0.62, y)
    return -_union(-disc, bite)


def _triangle(x: Floats, y: Floats) -> Floats:
    return _pointed(x, y, tips=3, notch=0.5)


def _bar(x: Floats, y: Floats) -> Floats:
    return 0.36 - np.hypot(np.maximum(np.abs(x) - 0.64, 0), y)


def _heart(x: Floats, y: Floats) -> Floats:
    # A square on its corner with a half-disc on each of its two upper sides.
    side = 0.5
    across, along = (x + y) * np.sqrt(0.5), (y - x) * np.sqrt(0.5)
    square = _rounded_box(across, along, side, side, corner=0.02)
    discs = _union(side - np.hypot(across + side, along), side - np.hypot(across, along + side))
    return _union(square, discs)


def _flower(x: Floats, y: Floats) -> Floats:
    x, y = _folded(x, y, 5)
    petal, middle = 0.42 - np.hypot(x - 0.6, y), 0.4 - np.hypot(x, y)
    return _union(petal, middle)


def _eyelet(x: Floats, y: Floats) -> Floats:
    return 0.29 - np.abs(np.hypot(x, y) - 0.7)


def _diamond(x: Floats, y: Floats) -> Floats:
    return _rounded_box((x + y) * np.sqrt(0.5), (y - x) * np.sqrt(0.5), 0.8, 0.8, corner=0.05)


def _clover(x: Floats, y: Floats) -> Floats:
    x, y = _folded(x, y, 3)
    return 0.5 - np.hypot(x - 0.46, y)


def _sparkle(x: Floats, y: Floats) -> Floats:
    return _pointed(x, y, tips=4, notch=0.5)


def _union(a: Floats, b: Floats) -> Floats:
    union: Floats = np.maximum(a, b)
    return union


def _pointed(x: Floats, y: Floats, tips: int, notch: float) -> Floats:
    """A star with tips at radius 1 and notches at radius `notch`."""
    x, y = _folded(x, y, tips)
    edge_x, edge_y = notch * np.cos(np.pi / tips) - 1, notch * np.sin(np.pi / tips)
    along = np.clip(((x - 1) * edge_x + y * edge_y) / (edge_x**2 + edge_y**2), 0, 1)
    from_edge = np.hypot(x - 1 - along * edge_x, y - along * edge_y)
    signed: Floats = np.where((x - 1) * edge_y < y * edge_x, from_edge, -from_edge)
    return signed


def _folded(x: Floats, y: Floats, tips: int) -> tuple[Floats, Floats]:
    """Coordinates turned and mirrored so that all tips, the first one upwards, come to lie on the x axis."""
    sector = 2 * np.pi / tips
    angle = np.arctan2(x, -y)
    angle = np.abs(angle - sector * np.round(angle / sector))
    return np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)


def _rounded_box(x: Floats, y: Floats, half_width: float, half_height: float, corner: float) -> Floats:
    beyond_x, beyond_y = np.abs(x) - (half_width - corner), np.abs(y) - (half_height - corner)
    outside = np.hypot(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0))
    return corner - outside - np.minimum(np.maximum(beyond_x, beyond_y), 0)


SHAPES: dict[str, Shape] = {
    "ball": _ball,
    "box": _box,
    "ring": _ring,
    "star": _star,
    "cross": _cross,
    "crescent": _crescent,
    "triangle": _triangle,
    "bar": _bar,
    "heart": _heart,
    "flower": _flower,
}
# Parts are compact, so that they touch their object wherever on its outline they stand.
PARTS: dict[str, Shape] = {
    "knob": _ball,
    "eyelet": _eyelet,
    "diamond": _diamond,
    "clover": _clover,
    "sparkle": _sparkle,
}


@functools.lru_cache(maxsize=4)
def distance_tables(resolution: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The distances, shapes resolution resolution (rows are y), and the largest distance inside each shape.

    Parts follow the ten shapes.
    """
    axis = _cell_centres(resolution)
    stacked = _distances([*SHAPES.values(), *PARTS.values()], *np.meshgrid(axis, axis))
    return stacked, stacked.max(axis=(1, 2))


@functools.lru_cache(maxsize=1)
def orbits(gap: float) -> Floats:
    """10 directions: how far from its middle one is still within `gap` of a shape; once around, from x towards y."""
    away = np.arange(0, SPAN + gap, 0.005)
    directions = np.arange(_DIRECTIONS) / _DIRECTIONS * 2 * np.pi
    x, y = away * np.cos(directions)[:, None], away * np.sin(directions)[:, None]
    near = _distances(list(SHAPES.values()), x, y) > -gap
    farthest: Floats = away[len(away) - 1 - near[..., ::-1].argmax(axis=-1)]
    return farthest


def _distances(shapes: list[Shape], x: Floats, y: Floats) -> NDArray[np.float32]:
    """At each x and y of all shapes, moved to their centroid and scaled to the same area."""
    grid_x, grid_y = np.meshgrid(_cell_centres(256), _cell_centres(256))
    cell = (2 * SPAN / 256) ** 2
    distances = []
    for distance in shapes:
        inside = distance(grid_x, grid_y) > 0
        scale = BALL_RADIUS * np.sqrt(np.pi / (inside.sum() * cell))
        here = scale * distance(x / scale + grid_x[inside].mean(), y / scale + grid_y[inside].mean())
        distances.append(here.astype(np.float32))
    return np.stack(distances)


def _cell_centres(resolution: int) -> Floats:
    return ((np.arange(resolution) + 0.5) / resolution * 2 - 1) * SPAN
