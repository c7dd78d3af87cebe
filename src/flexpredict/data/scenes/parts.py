"""The parts of objects in the built-in scenes: what a part looks like, and where on the outline it stands.

What a part is depends on the kind of its object alone. Where it stands is set by a dial from 0, always on top of its
object, to 1, anywhere around it. Nothing else changes with the dial: a part is the same picture in another place.
"""

from dataclasses import dataclass

import numpy as np

from flexpredict.data.scenes.dice import Dice, Floats, Ints
from flexpredict.data.scenes.objects import Objects
from flexpredict.data.scenes.shapes import BALL_RADIUS, PARTS, PLAIN, SHAPES, STRIPED, orbits, pattern_waves

PART_RADIUS = 0.5  # in radii of the object
HOME = -np.pi / 2  # on top, the place that mirroring an image leaves where it is
_OVERLAP = 0.4  # share of a part's radius that is behind its object: enough for the notches of any part to touch it

_SMOOTH, _BANDED = (*PLAIN, 0, 1.0), (*STRIPED, 90, 0.8)
# What each shape has for a part: no two the same.
_PART_OF = {
    "ball": ("eyelet", _BANDED),
    "box": ("sparkle", _SMOOTH),
    "ring": ("clover", _SMOOTH),
    "star": ("knob", _BANDED),
    "cross": ("knob", _SMOOTH),
    "crescent": ("eyelet", _SMOOTH),
    "triangle": ("clover", _BANDED),
    "bar": ("diamond", _BANDED),
    "heart": ("sparkle", _BANDED),
    "flower": ("diamond", _SMOOTH),
}
_KINDS = np.array([len(SHAPES) + list(PARTS).index(_PART_OF[shape][0]) for shape in SHAPES])
_COATS = np.array([_PART_OF[shape][1] for shape in SHAPES])


@dataclass(frozen=True)
class Parts:
    """One part of each of B K objects."""

    kind: Ints  # B K: which shape
    coats: Floats  # B K 6
    waves: Floats  # B K 4: angle and cycles of the pattern, and its phases
    direction: Floats  # B K: of the part from the middle of its object, as the object stands before it is turned


def imagine_parts(dice: Dice, of: Ints, where: float) -> Parts:
    """of: B K, the kinds of the objects. where: from 0, every part on top, to 1, every direction equally likely."""
    coats = _COATS[of]
    return Parts(
        kind=_KINDS[of],
        coats=coats,
        waves=pattern_waves(coats, dice("part waves", of.shape[1], 4)),
        direction=HOME + where * np.pi * dice.between("part place", (-1, 1), of.shape[1]),
    )


def attached(parts: Parts, objects: Objects) -> Objects:
    """The parts as objects to be painted, each at the outline of its own."""
    orbit = orbits(PART_RADIUS * BALL_RADIUS * (1 - _OVERLAP))
    steps = np.round(parts.direction / (2 * np.pi) * orbit.shape[1]).astype(np.int64) % orbit.shape[1]
    away = objects.radius * orbit[objects.kind, steps]
    toward = objects.angle + parts.direction
    return Objects(
        kind=parts.kind,
        center=objects.center + away[..., None] * np.stack((np.sin(toward), np.cos(toward)), axis=-1),
        radius=PART_RADIUS * objects.radius,
        angle=objects.angle,
        colors=objects.colors,
        pattern=parts.coats[..., :4],
        pattern_waves=parts.waves,
        bevel=objects.bevel,
        gloss=objects.gloss,
    )
