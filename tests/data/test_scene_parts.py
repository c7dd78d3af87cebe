"""The parts of objects in the built-in scenes: the dial `where` sets their places, and nothing else."""

import hashlib
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage, stats

from flexpredict.data.scenes.drawing import Scenes, draw
from flexpredict.data.scenes.objects import SHADOW_WIDTH, Objects
from flexpredict.data.scenes.scenes import CLASSES, draw_scenes, draw_videos
from flexpredict.data.scenes.shapes import SPAN, distance_tables
from flexpredict.data.scenes.worlds import (
    HOME,
    MAX_OBJECTS,
    PART_RADIUS,
    Dice,
    Worlds,
    at_frame,
    attach_parts,
    sample_parts,
    sample_worlds,
)
from flexpredict.errors import UserError
from flexpredict.randomness import sample_keys, stream_key

SQUARE = (64, 64)
INDICES = np.arange(300)
DIALS = (0.0, 0.3, 1.0)
MEANS = [[149.0, 152.95, 147.4], [115.64, 118.66, 113.57], [128.69, 132.66, 132.88], [123.77, 122.26, 123.26]]


def worlds_of(count: int, where: float | None, stream: str = "scenes/train") -> Worlds:
    return sample_worlds(sample_keys(stream_key(0, stream), torch.arange(count)), SQUARE, where)


def parts_of(scenes: Scenes) -> Objects:
    assert scenes.parts is not None
    return scenes.parts


def directions(scenes: Scenes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every part from its object, in (-π, π] from HOME as the object is turned, and how far in its radii: B K."""
    away = parts_of(scenes).center - scenes.objects.center
    angle = np.arctan2(away[..., 0], away[..., 1]) - scenes.objects.angle - HOME
    return -((np.pi - angle) % (2 * np.pi) - np.pi), np.hypot(*np.moveaxis(away, -1, 0)) / scenes.objects.radius


def drawn(scenes: Scenes, size: tuple[int, int] = SQUARE) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images = np.empty((len(scenes.present), *size, 3), np.uint8)
    masks = np.zeros((len(scenes.present), *size), np.uint8)
    draw(scenes, images, masks)
    return images, masks


def checksum(*arrays: NDArray[np.generic]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def test_scenes_stay_the_same_from_one_version_to_the_next() -> None:
    batch = draw_scenes(INDICES)
    assert checksum(batch.masks) == "fb609e8cb1ea1a3b"
    assert checksum(batch.classes, batch.counts, batch.nearest) == "3ed763ae28802d66"
    # Of pixels only the means: on another processor one may be rounded the other way.
    means = batch.images[:4].mean(axis=(1, 2))
    np.testing.assert_allclose(means, MEANS, atol=0.02)


@pytest.mark.parametrize("where", DIALS)
def test_parts_change_nothing_but_the_pixels_they_are_seen_at(where: float) -> None:
    plain, batch = draw_scenes(INDICES), draw_scenes(INDICES, where=where)
    for name in ("classes", "counts", "nearest"):
        assert np.array_equal(getattr(plain, name), getattr(batch, name))
    bodies = plain.masks > 0
    assert np.array_equal(plain.masks[bodies], batch.masks[bodies])
    scenes = worlds_of(len(INDICES), where).scenes
    # Parts are behind all objects, so where a glaring backdrop does not shine through, they cannot either.
    glaring = replace(scenes.backdrops, color=scenes.backdrops.color + 1e6)
    lit = drawn(replace(scenes, parts=None, backdrops=glaring))[0]
    opaque = ((lit == plain.images) & (lit < 255)).all(axis=-1)
    assert opaque.sum() > 0.5 * bodies.sum()
    far = beyond_parts(scenes)
    assert far.mean() > 0.2
    assert np.array_equal(plain.images[far | opaque], batch.images[far | opaque])
    assert (plain.images != batch.images).any(axis=-1).mean() > 0.05


def beyond_parts(scenes: Scenes) -> NDArray[np.bool_]:
    """B 64 64: pixels too far from any part for it, or its shadow, to be seen there."""
    parts = parts_of(scenes)
    pixels = np.moveaxis(np.mgrid[:64, :64] + 0.5, 0, -1) / 64
    distance = np.linalg.norm(pixels - parts.center[:, :, None, None], axis=-1)
    beyond: NDArray[np.bool_] = distance > 1.01 * np.sqrt(2) * SPAN * parts.radius[..., None, None]
    return (beyond | ~scenes.present[..., None, None]).all(axis=1)


def test_a_part_is_the_same_at_every_setting_of_the_dial_except_for_its_place() -> None:
    always, free = (parts_of(worlds_of(200, where).scenes) for where in (0.0, 1.0))
    for field in fields(Objects):
        assert np.array_equal(getattr(always, field.name), getattr(free, field.name)) == (field.name != "center")


def test_the_kind_of_a_part_depends_on_the_kind_of_its_object_alone_and_tells_it() -> None:
    scenes = worlds_of(1000, 0.5).scenes
    parts = parts_of(scenes)
    look = np.stack((parts.kind, parts.banded), axis=-1)
    looks = [set(map(tuple, look[scenes.objects.kind == kind])) for kind in range(len(CLASSES))]
    assert [len(of_kind) for of_kind in looks] == [1] * len(CLASSES)
    assert len(set.union(*looks)) == len(CLASSES)
    for kind in range(len(CLASSES)):  # bands vary a little, around the same angle and number
        assert np.ptp(parts.bands[scenes.objects.kind == kind][:, :2], axis=0).max() < 0.31


def test_at_0_every_part_stands_in_the_same_place_of_its_object() -> None:
    scenes = worlds_of(500, 0.0).scenes
    direction, away = directions(scenes)
    assert np.abs(direction).max() < 1e-9
    for kind in range(len(CLASSES)):
        assert np.ptp(away[scenes.objects.kind == kind]) < 1e-9


def test_at_1_every_direction_is_as_likely_for_every_kind_and_for_neighbors() -> None:
    scenes = worlds_of(1500, 1.0).scenes
    direction, _ = directions(scenes)
    assert stats.chisquare(np.histogram(direction, 36, (-np.pi, np.pi))[0]).pvalue > 1e-3
    for kind in range(len(CLASSES)):
        own = direction[scenes.objects.kind == kind]
        assert stats.kstest(own, "uniform", (-np.pi, 2 * np.pi)).pvalue > 1e-4
        assert np.abs(np.exp(1j * own).mean()) < 4 / np.sqrt(len(own))
    between = np.exp(1j * (direction[:, 1:] - direction[:, :-1]))
    assert np.abs(between.mean()) < 4 / np.sqrt(between.size)


def test_the_spread_of_places_grows_in_proportion_to_the_dial() -> None:
    full, _ = directions(worlds_of(300, 1.0).scenes)
    for where in (0.1, 0.5, 0.9):
        direction, _ = directions(worlds_of(300, where).scenes)
        np.testing.assert_allclose(direction, where * full, atol=1e-9)


def test_on_the_image_parts_are_on_top_at_0_and_on_all_sides_at_1() -> None:
    alone = INDICES[draw_scenes(INDICES).counts == 1]
    plain = draw_scenes(alone).masks
    rows, columns = np.mgrid[:64, :64]
    seen = {}
    for where in (0.0, 1.0):
        part = (draw_scenes(alone, where=where).masks > 0) & (plain == 0)
        whole = [b for b in range(len(alone)) if part[b].sum() > 20]
        angles = [
            np.arctan2(
                rows[part[b]].mean() - rows[plain[b] > 0].mean(),
                columns[part[b]].mean() - columns[plain[b] > 0].mean(),
            )
            for b in whole
        ]
        assert len(whole) > 0.7 * len(alone)
        seen[where] = np.angle(np.exp(1j * (np.array(angles) + np.pi / 2)))
    assert np.abs(seen[0.0]).max() < 0.9  # objects are turned by up to 0.47, and some parts are cut off
    assert np.histogram(seen[1.0], 4, (-np.pi, np.pi))[0].min() > 0.1 * len(seen[1.0])


def test_every_part_touches_its_object_and_most_of_it_can_be_seen() -> None:
    """24 directions for each of the ten kinds, at 160 pixels."""
    count, radius = 240, 0.2
    scenes = worlds_of(count, 1.0).scenes
    o = scenes.objects
    kind = np.broadcast_to(np.arange(count)[:, None] % len(CLASSES), o.kind.shape)
    middle = replace(o, kind=kind, center=np.full_like(o.center, 0.5), radius=np.full_like(o.radius, radius))
    dice = Dice(sample_keys(stream_key(0, "parts"), torch.arange(count)))
    alone = replace(
        scenes,
        objects=middle,
        parts=attach_parts(sample_parts(dice, kind, 1.0), middle),
        present=np.broadcast_to(np.arange(MAX_OBJECTS) == 0, o.kind.shape),
    )
    _, masks = drawn(alone, (160, 160))
    _, bodies = drawn(replace(alone, parts=None), (160, 160))
    for mask, body in zip(masks, bodies, strict=True):
        assert ndimage.label(mask, np.ones((3, 3)))[1] == 1
        assert mask.sum() - body.sum() > 0.6 * np.pi * (0.74 * PART_RADIUS * radius * 160) ** 2


def test_parts_outside_the_image_leave_no_trace() -> None:
    plain = worlds_of(100, None).scenes
    scenes = worlds_of(100, 1.0).scenes
    parts = parts_of(scenes)
    tables, _ = distance_tables(256)
    borders = np.concatenate((tables[:, [0, -1]], tables[:, :, [0, -1]].swapaxes(1, 2)), axis=1)
    assert borders[len(CLASSES) :].max() < -SHADOW_WIDTH
    for center in ((-0.5, 0.5), (0.5, 1.5), (7.0, -7.0)):
        outside = replace(scenes, parts=replace(parts, center=np.broadcast_to(center, parts.center.shape)))
        for with_parts, without in zip(drawn(outside), drawn(plain), strict=True):
            assert np.array_equal(with_parts, without)


def test_every_counted_object_is_visible_and_numbered_with_its_part() -> None:
    for size in (SQUARE, (32, 96)):
        batch = draw_scenes(INDICES, where=1.0, size=size)
        plain = draw_scenes(INDICES, size=size)
        assert all(mask.max() == count for mask, count in zip(batch.masks, batch.counts, strict=True))
        grown = [
            (batch.masks == number).sum() / (plain.masks == number).sum() for number in range(1, MAX_OBJECTS + 1)
        ]
        assert min(grown) > 1.08


def test_a_scene_with_parts_is_bit_identical_alone_and_in_any_batch() -> None:
    together = draw_scenes(INDICES, where=0.6)
    for index in (0, 7, 130, 299):
        alone = draw_scenes(INDICES[index : index + 1], where=0.6)
        assert np.array_equal(alone.images[0], together.images[index])
        assert np.array_equal(alone.masks[0], together.masks[index])


def test_in_a_video_parts_travel_and_turn_with_their_objects() -> None:
    worlds = worlds_of(40, 1.0, "scenes/video")
    first, away = directions(worlds.scenes)
    for frame in (1, 9):
        later = at_frame(worlds, frame, SQUARE)
        direction, still_away = directions(later)
        np.testing.assert_allclose(np.exp(1j * direction), np.exp(1j * first), atol=1e-9)
        np.testing.assert_allclose(still_away, away)
        np.testing.assert_allclose(parts_of(later).radius, PART_RADIUS * later.objects.radius)
    plain, video = (draw_videos(np.arange(10), frames=6, where=where) for where in (None, 1.0))
    bodies = plain.masks > 0
    assert np.array_equal(plain.masks[bodies], video.masks[bodies])
    assert (video.masks > 0).sum() > 1.08 * bodies.sum()


@pytest.mark.parametrize("where", [-0.01, 1.01, float("nan"), float("inf")])
def test_a_dial_beyond_its_ends_is_refused(where: float) -> None:
    with pytest.raises(UserError, match=f"where is {where:g}; use a number from 0"):
        draw_scenes(INDICES, where=where)
    with pytest.raises(UserError, match=f"where is {where:g}; use a number from 0"):
        draw_videos(INDICES, where=where)
