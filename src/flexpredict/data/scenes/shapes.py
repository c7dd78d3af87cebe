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


def _crescent(x: Floats, y: Floats) -> Floats:
    disc, bite = 1 - np.hypot(x, y), 0.78 - np.hypot(x - 0.62, y)
    return -_union(-disc, bite)


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


def _clover(x: Floats, y: Floats) -> Floats:
    x, y = _folded(x, y, 3)
    return 0.5 - np.hypot(x - 0.46, y)


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
    "ball": lambda x, y: 1 - np.hypot(x, y),
    "box": lambda x, y: _rounded_box(x, y, 0.85, 0.85, corner=0.12),
    "ring": lambda x, y: 0.19 - np.abs(np.hypot(x, y) - 0.8),
    "star": lambda x, y: _pointed(x, y, tips=5, notch=0.46),
    "cross": lambda x, y: _union(
        _rounded_box(x, y, 1.0, 0.3, corner=0.08), _rounded_box(x, y, 0.3, 1.0, corner=0.08)
    ),
    "crescent": _crescent,
    "triangle": lambda x, y: _pointed(x, y, tips=3, notch=0.5),
    "bar": lambda x, y: 0.36 - np.hypot(np.maximum(np.abs(x) - 0.64, 0), y),
    "heart": _heart,
    "flower": _flower,
}
# Parts are compact: they touch their object wherever on its outline they stand, and their shadow ends within SPAN.
PARTS: dict[str, Shape] = {
    "knob": lambda x, y: 1 - np.hypot(x, y),
    "eyelet": lambda x, y: 0.29 - np.abs(np.hypot(x, y) - 0.7),
    "diamond": lambda x, y: _rounded_box((x + y) * np.sqrt(0.5), (y - x) * np.sqrt(0.5), 0.8, 0.8, corner=0.05),
    "clover": _clover,
    "sparkle": lambda x, y: _pointed(x, y, tips=4, notch=0.58),
}


@functools.lru_cache(maxsize=4)
def distance_tables(resolution: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The distances, shapes resolution resolution (rows are y), and the largest distance inside each shape.

    Every shape is moved to its centroid and scaled to the same area. Parts follow the ten shapes.
    """
    x, y = np.meshgrid(_cell_centers(256), _cell_centers(256))
    cell = (2 * SPAN / 256) ** 2
    tables = []
    for distance in (*SHAPES.values(), *PARTS.values()):
        inside = distance(x, y) > 0
        scale = BALL_RADIUS * np.sqrt(np.pi / (inside.sum() * cell))
        axis = _cell_centers(resolution) / scale
        table = scale * distance(*np.meshgrid(axis + x[inside].mean(), axis + y[inside].mean()))
        tables.append(table.astype(np.float32))
    stacked = np.stack(tables)
    return stacked, stacked.max(axis=(1, 2))


@functools.lru_cache(maxsize=1)
def orbits(radius: float) -> Floats:
    """10 directions: how far from the middle of each shape a disc of this radius still touches it.

    The directions go once around, from x toward y.
    """
    tables, _ = distance_tables(256)
    directions = np.arange(_DIRECTIONS)[:, None] / _DIRECTIONS * 2 * np.pi
    axis, two_cells = _cell_centers(256), 4 * SPAN / 256
    farthest = []
    for table in tables[: len(SHAPES)]:
        row, column = np.nonzero((table > 0) & (table < two_cells))  # the rim, which is what a disc outside touches
        x, y = axis[column], axis[row]
        ahead = x * np.cos(directions) + y * np.sin(directions)  # directions rim
        aside = x * np.sin(directions) - y * np.cos(directions)
        touching = ahead + np.sqrt(np.maximum(radius**2 - aside**2, 0))
        farthest.append(np.where(np.abs(aside) < radius, touching, 0).max(axis=1))
    return np.stack(farthest)


def _cell_centers(resolution: int) -> Floats:
    return ((np.arange(resolution) + 0.5) / resolution * 2 - 1) * SPAN
