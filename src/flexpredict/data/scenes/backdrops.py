"""What the built-in scenes show behind their objects: gradients, clouds, stripes, checks, ground and spots.

Every feature is a sum of products (curve over the rows) × (curve over the columns) × (color), so that a whole
backdrop is one small matrix product instead of a dozen passes over its pixels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Backdrops:
    """B backdrops. Lengths are in shorter image sides, colors in gray levels; color 0 leaves a feature out."""

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


def paint_backdrops(backdrops: Backdrops, size: tuple[int, int]) -> NDArray[np.float32]:
    """B 3 H W, in gray levels, not yet limited to 0 … 255."""
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
