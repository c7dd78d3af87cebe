"""Decides what is in a built-in scene, and how it moves: all randomness is here.

All of it is independent of the class except the shapes of objects and the look of their parts. Where a part stands is
set by a dial from 0, always on top of its object, to 1, anywhere around it; nothing else changes with the dial.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from flexpredict.data.scenes.drawing import Backdrops, Scenes
from flexpredict.data.scenes.objects import Objects
from flexpredict.data.scenes.shapes import BALL_RADIUS, PARTS, SHAPES, Floats, orbits
from flexpredict.randomness import sample_keys, stream_key, uniform

Ints = NDArray[np.int64]
Range = tuple[float, float]

# How hard the scenes are. Lengths are in shorter image sides.
MAX_OBJECTS = 4  # counts are uniform from 1 to this
TURN = 0.15  # objects are turned by up to this share of half a turn: 1 takes many times the images to learn
NEAREST: Range = (1.9, 3.8)  # distance of the nearest object, uniform, whatever the count and the class
FARTHEST = 4.6  # distance up to which the other objects stand
RADIUS_AT_1 = 0.8  # radius of an object at distance 1: at 64 px, objects have a radius of 10 to 30 pixels
SIZE_SPREAD = 0.12  # true sizes differ by this share, so apparent size does not quite tell distance
CLEARANCE = 0.1  # the middle of an object, this share of its radius, is never hidden: 1 forbids occlusion
EDGE = 0.7  # a center is this many radii from the image's edge: less than 1 cuts objects off
OBJECT_VALUE: Range = (0.85, 1.0)  # brightness of objects and backdrops: where they overlap,
BACKDROP_VALUE: Range = (0.42, 0.5)  # figure and ground are harder to tell apart
OBJECT_SATURATION: Range = (0.0, 0.2)  # colors say nothing about the class; the stronger they are,
BACKDROP_SATURATION: Range = (0.0, 0.1)  # the more of what a model learns first is color
BAND_VALUE: Range = (0.1, 0.3)  # brightness of a part's bands: far from the body's, so that they show at any hue
BACKDROP_CONTRAST = 0.15  # multiplies gradients, clouds, stripes, checks and spots
HAZE = 0.3  # share of the backdrop's color in an object at FARTHEST: the cue to distance besides size
NOISE_LEVEL = 2.0  # standard deviation of the sensor noise, in gray levels

# How much a video moves, at most, from one frame to the next.
SPEED, SPIN, BREATH, PAN = 0.03, 0.06, 0.02, 0.005  # of objects (sides, radians, share of radius) and camera (sides)

_CANDIDATES = 256  # places tried for an object before it is left out, which happens in 1 of 50 scenes
_CLOUDS, _SPOTS = 3, 8
_PLAIN, _STRIPES, _CHECKS, _GROUND, _SPOTTED = range(5)

PART_RADIUS = 0.5  # in radii of the object
HOME = -np.pi / 2  # on top: the direction that mirroring an image does not change
_OVERLAP = 0.4  # share of a part's radius that is behind its object: enough for the notches of any part to touch it
# The part of each shape, and whether it has bands: no two the same.
_PART_OF = {
    "ball": ("eyelet", True),
    "box": ("sparkle", False),
    "ring": ("clover", False),
    "star": ("knob", True),
    "cross": ("knob", False),
    "crescent": ("eyelet", False),
    "triangle": ("clover", True),
    "bar": ("diamond", True),
    "heart": ("sparkle", True),
    "flower": ("diamond", False),
}
_PART_KINDS = np.array([len(SHAPES) + list(PARTS).index(_PART_OF[shape][0]) for shape in SHAPES])
_PART_BANDED = np.array([_PART_OF[shape][1] for shape in SHAPES])


class Dice:
    """Uniform numbers for B scenes, each a pure function of the scene's key and of what it is for.

    float64, because sines and the like may differ in their last bit with the length of an array: rounded to float32
    afterwards, a scene is the same in every batch.
    """

    def __init__(self, keys: torch.Tensor) -> None:
        self._keys = keys

    def __call__(self, what: str, *shape: int) -> Floats:
        """B *shape, in [0, 1)."""
        keys = sample_keys(stream_key(0, what), self._keys)
        numbers = uniform(keys, int(np.prod(shape))).double().numpy()
        return numbers.reshape(len(keys), *shape)

    def between(self, what: str, ends: Range, *shape: int) -> Floats:
        return ends[0] + (ends[1] - ends[0]) * self(what, *shape)

    def choice(self, what: str, options: int, *shape: int) -> Ints:
        return (self(what, *shape) * options).astype(np.int64)


@dataclass(frozen=True)
class Parts:
    """One part of each of B K objects."""

    kind: Ints  # B K: which shape
    banded: NDArray[np.bool_]  # B K
    bands: Floats  # B K 3
    direction: Floats  # B K: of the part from the middle of its object, as the object stands before it is turned


@dataclass(frozen=True)
class Worlds:
    """B scenes with their ground truth, and how they will move."""

    classes: Ints  # B
    nearest: Floats  # B
    distance: Floats  # B K: of each object
    scenes: Scenes
    velocity: Floats  # B K 2: sides a frame
    spin: Floats  # B K: radians a frame
    breath: Floats  # B K: change of radius a frame at the start
    pan: Floats  # B 2: sides a frame
    parts: Parts | None  # of the objects


def sample_worlds(keys: torch.Tensor, size: tuple[int, int], where: float | None = None) -> Worlds:
    """The worlds of these keys (B), for images of this height and width. where: of the parts, None for no parts."""
    dice, count = Dice(keys), MAX_OBJECTS
    classes = dice.choice("class", len(SHAPES))
    wanted = np.arange(count) <= dice.choice("count", count)[:, None]  # B K
    nearest = dice.between("nearest", NEAREST)
    distance = _distances(dice, nearest, wanted)
    radius = RADIUS_AT_1 / distance * dice.between("size", (1 - SIZE_SPREAD, 1 + SIZE_SPREAD), count)
    center, present = _places(dice("place", count, _CANDIDATES, 2), radius, wanted, size)
    kind = np.broadcast_to(classes[:, None], radius.shape)
    backdrops = _backdrops(dice)
    lamp = dice.between("lamp", (0, 2 * np.pi))
    objects = Objects(
        kind=kind,
        center=center,
        radius=radius,
        angle=np.pi * TURN * dice.between("angle", (-1, 1), count),
        colors=_object_colors(dice, distance, backdrops),
        # Objects are plain: with a pattern for each shape the class would be a matter of texture.
        banded=np.zeros(kind.shape, np.bool_),
        bands=np.zeros((*kind.shape, 3)),
        bevel=dice.between("bevel", (0.35, 1), count),
        gloss=130 * dice("gloss", count) ** 2,
    )
    parts = None if where is None else sample_parts(dice, kind, where)
    scenes = Scenes(
        backdrops,
        objects,
        present,
        light=np.stack((np.sin(lamp), np.cos(lamp)), axis=1),
        noise_start=dice("noise"),
        noise_level=np.full(len(keys), NOISE_LEVEL),
        parts=None if parts is None else attach_parts(parts, objects),
    )
    return Worlds(
        classes,
        nearest,
        distance,
        scenes,
        velocity=dice.between("velocity", (-SPEED, SPEED), count, 2),
        spin=dice.between("spin", (-SPIN, SPIN), count),
        breath=dice.between("breath", (-BREATH, BREATH), count),
        pan=dice.between("pan", (-PAN, PAN), 2),
        parts=parts,
    )


def at_frame(worlds: Worlds, frame: int, size: tuple[int, int]) -> Scenes:
    """The scenes as they are `frame` frames later. Objects bounce off the edges, and sway a little to and fro."""
    scenes, objects = worlds.scenes, worlds.scenes.objects
    low, room = _where_centers_may_be(objects.radius, size)
    traveled = (objects.center - low + worlds.velocity * frame) / room
    bounced = 1 - np.abs(1 - traveled % 2)
    sway = 0.3  # radians a frame
    moved = replace(
        objects,
        center=low + bounced * room,
        angle=objects.angle + worlds.spin * frame,
        radius=objects.radius * (1 + worlds.breath / sway * np.sin(sway * frame)),
    )
    golden = 0.618034  # spreads the frames evenly over the available noise
    return replace(
        scenes,
        backdrops=replace(scenes.backdrops, pan=worlds.pan * frame),
        objects=moved,
        parts=None if worlds.parts is None else attach_parts(worlds.parts, moved),
        noise_start=(scenes.noise_start + golden * frame) % 1,
    )


def sample_parts(dice: Dice, of: Ints, where: float) -> Parts:
    """of: B K, the kinds of the objects. where: from 0, every part on top, to 1, every direction equally likely."""
    bands = dice("part waves", of.shape[1], 4)[..., :3] * (0.3, 0.2, 1) - (0.15, 0, 0) + (np.pi / 2, 0.8, 0)
    return Parts(
        kind=_PART_KINDS[of],
        banded=_PART_BANDED[of],
        bands=bands,
        direction=HOME + where * np.pi * dice.between("part place", (-1, 1), of.shape[1]),
    )


def attach_parts(parts: Parts, objects: Objects) -> Objects:
    """The parts as objects to be painted, each at the outline of its object."""
    orbit = orbits(PART_RADIUS * BALL_RADIUS * (1 - _OVERLAP))
    steps = np.round(parts.direction / (2 * np.pi) * orbit.shape[1]).astype(np.int64) % orbit.shape[1]
    away = objects.radius * orbit[objects.kind, steps]
    toward = objects.angle + parts.direction
    return replace(
        objects,
        kind=parts.kind,
        center=objects.center + away[..., None] * np.stack((np.sin(toward), np.cos(toward)), axis=-1),
        radius=PART_RADIUS * objects.radius,
        banded=parts.banded,
        bands=parts.bands,
    )


def _distances(dice: Dice, nearest: Floats, wanted: NDArray[np.bool_]) -> Floats:
    """B K, ascending over the wanted objects, which come first."""
    # The root puts more objects far away, as there is more room there.
    share = np.where(wanted[:, 1:], np.sqrt(dice("distance", wanted.shape[1] - 1)), 1)
    behind = nearest[:, None] + 0.1
    others = behind + (FARTHEST - behind) * np.sort(share, axis=1)
    return np.concatenate((nearest[:, None], others), axis=1)


def _places(
    candidates: Floats, radius: Floats, wanted: NDArray[np.bool_], size: tuple[int, int]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Centers B K 2, nearest first, each the first candidate (B K C 2, in [0, 1)) that is clear of those before it.

    If none is, the object is left out, so that every counted object can be seen.
    """
    low, room = _where_centers_may_be(radius, size)
    candidates = low[:, :, None] + candidates * room[:, :, None]
    center, present = candidates[:, :, 0].copy(), wanted.copy()
    for k in range(1, radius.shape[1]):
        needed = np.where(present[:, :k], radius[:, :k] + CLEARANCE * radius[:, k, None], 0)[:, :, None]  # B k 1
        down, across = (candidates[:, None, k, :, i] - center[:, :k, None, i] for i in (0, 1))  # B k C
        clear: NDArray[np.bool_] = np.all(down**2 + across**2 >= needed**2, axis=1)  # B C
        center[:, k] = np.take_along_axis(candidates[:, k], clear.argmax(axis=1)[:, None, None], axis=1)[:, 0]
        present[:, k] &= clear.any(axis=1)
    return center, present


def _where_centers_may_be(radius: Floats, size: tuple[int, int]) -> tuple[Floats, Floats]:
    """The smallest center and the range from there, ... 2 each."""
    low = EDGE * np.stack((radius, radius), axis=-1)
    return low, np.array(size) / min(size) - 2 * low


def _object_colors(dice: Dice, distance: Floats, backdrops: Backdrops) -> Floats:
    """B K 2 3."""
    count = distance.shape[1]
    body = _color(dice, "", OBJECT_SATURATION, OBJECT_VALUE, count)
    bands = _color(dice, "pattern ", OBJECT_SATURATION, BAND_VALUE, count)
    colors = np.stack((body, bands), axis=2)
    middle = backdrops.color + backdrops.slopes.sum(axis=1) / 2
    haze = HAZE * (distance - NEAREST[0]) / (FARTHEST - NEAREST[0])
    colors += haze[..., None, None] * (middle[:, None, None] - colors)
    return colors


def _backdrops(dice: Dice) -> Backdrops:
    """A gradient with clouds in every scene, and on top of it one of four features, or none."""
    style = dice.choice("style", 5)[:, None]

    def only(this_style: int, color: Floats) -> Floats:
        chosen = style == this_style
        return np.where(chosen if color.ndim == 2 else chosen[:, None], color, 0)

    def contrast(what: str, levels: float, *shape: int) -> Floats:
        """Mostly lighter or darker, a little colored. Streams keep their names: new names would change all scenes."""
        gray, tint = dice.between(what, (-1, 1), *shape, 1), dice.between(f"{what} tint", (-1, 1), *shape, 3)
        return BACKDROP_CONTRAST * levels * (0.55 * gray + 0.45 * tint)

    color = _color(dice, "backdrop ", BACKDROP_SATURATION, BACKDROP_VALUE)
    ground = _color(dice, "ground ", BACKDROP_SATURATION, BACKDROP_VALUE)
    clouds = dice.between("clouds", (-2, 2), _CLOUDS, 3)
    direction, cycles = dice.between("stripe direction", (0, 2 * np.pi)), dice.between("stripe cycles", (4, 9))
    stripes = np.stack((cycles * np.sin(direction), cycles * np.cos(direction), dice("stripe phase")), axis=1)
    stripe_color = only(_STRIPES, contrast("stripe colour", 32))
    return Backdrops(
        color=color,
        slopes=contrast("slopes", 55, 2),
        waves=np.concatenate((clouds, stripes[:, None]), axis=1),
        wave_colors=np.concatenate((contrast("cloud colours", 18, _CLOUDS), stripe_color[:, None]), axis=1),
        checks=dice.between("checks", (2.5, 5.5), 3),
        check_color=only(_CHECKS, contrast("check colour", 26)),
        horizon=dice.between("horizon", (0.25, 0.7)),
        ground_color=only(_GROUND, ground - color),
        band_color=only(_GROUND, contrast("bands", 18)),
        spots=dice("spots", _SPOTS, 3) * (1, 1, 0.09) + (0, 0, 0.03),
        spot_colors=only(_SPOTTED, contrast("spot colours", 70, _SPOTS)),
        pan=np.zeros((len(color), 2)),
    )


def _color(dice: Dice, what: str, saturation: Range, value: Range, *shape: int) -> Floats:
    """B *shape 3, in gray levels."""
    wheel = 0.5 + 0.5 * np.cos(2 * np.pi * (dice(f"{what}hue", *shape)[..., None] - np.arange(3) / 3))
    pale = 1 - dice.between(f"{what}saturation", saturation, *shape)[..., None] * (1 - wheel)
    return 255 * dice.between(f"{what}value", value, *shape)[..., None] * pale
