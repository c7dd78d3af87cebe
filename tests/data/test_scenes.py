"""The built-in scenes: what is promised of them, and their painter against a slow one."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from flexpredict.data.scenes import worlds as scene_worlds
from flexpredict.data.scenes.drawing import Backdrops, Scenes, draw, paint_backdrops
from flexpredict.data.scenes.scenes import CLASSES, SceneBatch, draw_scenes, draw_videos, nearest_bins
from flexpredict.data.scenes.shapes import PARTS, SHAPES, SPAN, distance_tables
from flexpredict.data.scenes.worlds import Worlds, at_frame, sample_worlds
from flexpredict.errors import UserError
from flexpredict.randomness import sample_keys, stream_key

SQUARE = (64, 64)


def worlds_of(
    count: int, size: tuple[int, int] = SQUARE, stream: str = "scenes/train", where: float | None = None
) -> Worlds:
    return sample_worlds(sample_keys(stream_key(0, stream), torch.arange(count)), size, where)


def drawn(scenes: Scenes, size: tuple[int, int]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images = np.empty((len(scenes.present), *size, 3), np.uint8)
    masks = np.zeros((len(scenes.present), *size), np.uint8)
    draw(scenes, images, masks)
    return images, masks


def same(a: SceneBatch, b: SceneBatch) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(SceneBatch))


def test_a_scene_is_bit_identical_alone_and_in_any_batch() -> None:
    indices = np.array([700, 3, 3, 12, 1_000_000_007, 0, *range(100, 230)])
    together = draw_scenes(indices)
    for position in (0, 1, 2, 4, 77, 135):
        alone = draw_scenes(indices[position : position + 1])
        part = SceneBatch(**{f.name: getattr(together, f.name)[position : position + 1] for f in fields(SceneBatch)})
        assert same(alone, part)
    reverse = draw_scenes(indices[::-1])
    assert np.array_equal(reverse.images[::-1], together.images)


def test_no_scene_is_shared_between_splits_seeds_or_indices() -> None:
    batches = [draw_scenes(np.arange(200), size=32, seed=seed, split=split) for seed, split in
               ((0, "train"), (0, "test"), (1, "train"))]  # fmt: skip
    seen = {image.tobytes() for batch in batches for image in batch.images}
    assert len(seen) == 600
    # Not even the same world under other noise: the distances are continuous.
    assert len({float(distance) for batch in batches for distance in batch.nearest}) == 600


def test_every_counted_object_is_visible_and_numbered_from_the_nearest() -> None:
    batch = draw_scenes(np.arange(600))
    for mask, count in zip(batch.masks, batch.counts, strict=True):
        pixels = np.bincount(mask.ravel(), minlength=8)[1:]
        assert (pixels[:count] >= 30).all()
        assert (pixels[count:] == 0).all()


@pytest.mark.parametrize("where", [None, 0.7])
def test_masks_agree_with_painting_each_pixel_from_the_shapes_formulas(where: float | None) -> None:
    size = (48, 80)
    worlds = worlds_of(40, size, where=where)
    _, masks = drawn(worlds.scenes, size)
    expected = slow_masks(worlds.scenes, size)
    assert (masks == expected).mean() > 0.998  # a table's cell is a fraction of a pixel
    assert masks.max() == 4


def slow_masks(scenes: Scenes, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Each pixel of each object by itself: first all parts, then all objects, from far to near."""
    formulas = [normalized(shape) for shape in (*SHAPES.values(), *PARTS.values())]
    height, width = size
    masks = np.zeros((len(scenes.present), height, width), np.uint8)
    for things in filter(None, (scenes.parts, scenes.objects)):
        for b in range(len(masks)):
            present = np.flatnonzero(scenes.present[b])
            for number, k in reversed(list(enumerate(present, start=1))):
                cos, sin = np.cos(things.angle[b, k]), np.sin(things.angle[b, k])
                rows, columns = np.mgrid[:height, :width] + 0.5
                dy = (rows / min(size) - things.center[b, k, 0]) / things.radius[b, k]
                dx = (columns / min(size) - things.center[b, k, 1]) / things.radius[b, k]
                inside = formulas[things.kind[b, k]](cos * dx + sin * dy, cos * dy - sin * dx) > 0
                masks[b][inside] = number
    return masks


def normalized(shape):  # type: ignore[no-untyped-def]
    """A shape about its centroid and with the common area, by counting on a grid of another pitch."""
    axis = np.linspace(-SPAN, SPAN, 701)
    x, y = np.meshgrid(axis, axis)
    inside = shape(x, y) > 0
    scale = 0.74 * np.sqrt(np.pi / (inside.sum() * (axis[1] - axis[0]) ** 2))
    return lambda u, v: shape(u / scale + x[inside].mean(), v / scale + y[inside].mean())


def test_backdrops_agree_with_evaluating_their_features_pixel_by_pixel() -> None:
    size = (40, 56)
    b = replace(worlds_of(60, size).scenes.backdrops, pan=np.tile([0.07, -0.11], (60, 1)))
    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
    y, x = (grid[None, ..., None] / 40 + pan for grid, pan in ((rows, 0.07), (columns, -0.11)))

    def of(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return numbers[:, None, None, None] if numbers.ndim == 1 else numbers[:, None, None]

    expected = of(b.color) + y * of(b.slopes[:, 0]) + x * of(b.slopes[:, 1])
    for k in range(b.waves.shape[1]):
        down, across, phase = (of(b.waves[:, k, i]) for i in range(3))
        expected = expected + np.cos(2 * np.pi * (down * y + across * x + phase)) * of(b.wave_colors[:, k])
    square = [np.cos(2 * np.pi * (of(b.checks[:, i]) * axis + of(b.checks[:, 2]))) for i, axis in ((0, y), (1, x))]
    expected = expected + np.clip(4 * square[0], -1, 1) * np.clip(4 * square[1], -1, 1) * of(b.check_color)
    below = y - of(b.horizon)
    ground = np.clip(below * 40 + 0.5, 0, 1)
    bands = np.cos(2.5 / (np.maximum(below, 0) + 0.08))
    expected = expected + ground * (of(b.ground_color) + bands * of(b.band_color))
    for k in range(b.spots.shape[1]):
        spot_y, spot_x, radius = (of(b.spots[:, k, i]) for i in range(3))
        expected = expected + np.exp(-((y - spot_y) ** 2 + (x - spot_x) ** 2) / radius**2) * of(b.spot_colors[:, k])
    np.testing.assert_allclose(paint_backdrops(b, size).transpose(0, 2, 3, 1), expected, atol=0.01)


def test_a_feature_with_no_color_is_not_there() -> None:
    b = worlds_of(5).scenes.backdrops
    blank = {f.name: 0 * getattr(b, f.name) for f in fields(Backdrops) if "color" in f.name or f.name == "slopes"}
    painted = paint_backdrops(replace(b, **(blank | {"color": b.color})), SQUARE)
    np.testing.assert_allclose(painted, np.broadcast_to(b.color[:, :, None, None], painted.shape), atol=1e-3)


def test_the_nearer_of_two_objects_at_one_place_hides_the_other() -> None:
    scenes = worlds_of(50).scenes
    o, both = scenes.objects, np.arange(4) < 2
    balls = replace(
        o,
        kind=np.zeros_like(o.kind),
        center=np.full_like(o.center, 0.5),
        radius=np.full_like(o.radius, 0.2),
        angle=np.zeros_like(o.angle),
    )
    plain = replace(scenes, objects=balls, present=np.broadcast_to(both, o.radius.shape), noise_level=np.zeros(50))
    images, masks = drawn(plain, SQUARE)
    assert set(np.unique(masks)) == {0, 1}
    # The hidden one may change nothing but the soft edge and the shadow outside it.
    other_colors = o.colors.copy()
    other_colors[:, 1] = 255 - other_colors[:, 1]
    changed, _ = drawn(replace(plain, objects=replace(balls, colors=other_colors)), SQUARE)
    middle = np.hypot(*(np.mgrid[:64, :64] - 31.5)) < 0.74 * 0.2 * 64 - 1
    assert np.array_equal(images[:, middle], changed[:, middle])


def test_an_object_is_lit_on_the_side_of_the_lamp() -> None:
    scenes = worlds_of(64).scenes
    o = scenes.objects
    ball = replace(
        o,
        kind=np.zeros_like(o.kind),
        center=np.full_like(o.center, 0.5),
        radius=np.full_like(o.radius, 0.4),
        bevel=np.ones_like(o.bevel),
    )
    images, masks = drawn(replace(scenes, objects=ball, present=np.arange(4) < np.ones((64, 1))), SQUARE)
    toward = np.einsum("bi,ihw->bhw", scenes.light, np.mgrid[:64, :64] - 31.5)
    gray = images.mean(axis=-1)
    for b in range(64):
        inside = masks[b] == 1
        assert gray[b][inside & (toward[b] > 4)].mean() > 1.15 * gray[b][inside & (toward[b] < -4)].mean()


def test_the_same_world_is_drawn_at_every_resolution() -> None:
    small = draw_scenes(np.arange(40), size=64)
    large = draw_scenes(np.arange(40), size=128)
    shrunk = large.images.reshape(40, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(shrunk - small.images).mean() < 6  # noise alone is about 3.6
    assert (large.masks[:, ::2, ::2] == small.masks).mean() > 0.97
    assert np.array_equal(large.counts, small.counts)
    assert np.array_equal(large.nearest, small.nearest)


def test_images_may_be_wide_or_tall() -> None:
    for size in ((32, 96), (80, 24)):
        batch = draw_scenes(np.arange(50), size=size)
        assert batch.images.shape == (50, *size, 3)
        assert batch.masks.shape == (50, *size)
        assert all(mask.max() == count for mask, count in zip(batch.masks, batch.counts, strict=True))


def test_class_count_and_distance_are_uniform_and_independent() -> None:
    worlds = worlds_of(6000)
    counts = worlds.scenes.present.sum(axis=1)
    bins = nearest_bins(worlds.nearest)
    table = np.zeros((len(CLASSES), 4, 6))
    np.add.at(table, (worlds.classes, counts - 1, bins), 1)
    for axes, cells in (((1, 2), 10), ((0, 2), 4), ((0, 1), 6)):
        expected = 6000 / cells
        assert (np.abs(table.sum(axis=axes) - expected) < 4 * np.sqrt(expected) + 0.01 * expected).all()
    for pairs in (table.sum(axis=axis) for axis in range(3)):
        expected = pairs.sum(1, keepdims=True) * pairs.sum(0) / pairs.sum()
        freedom = (pairs.shape[0] - 1) * (pairs.shape[1] - 1)
        assert ((pairs - expected) ** 2 / expected).sum() < freedom + 4 * np.sqrt(2 * freedom)


def test_all_objects_have_the_shape_of_the_scenes_class() -> None:
    worlds = worlds_of(300)
    assert (worlds.scenes.objects.kind == worlds.classes[:, None]).all()
    assert set(worlds.classes) == set(range(len(CLASSES)))


def test_nearer_objects_come_first_and_are_larger_on_average() -> None:
    worlds = worlds_of(2000)
    all_there = worlds.scenes.present.all(axis=1)
    radius = worlds.scenes.objects.radius[all_there].mean(axis=0)
    assert (np.diff(radius) < 0).all()
    in_pixels = 64 * worlds.scenes.objects.radius[worlds.scenes.present]
    assert in_pixels.min() > 9
    assert in_pixels.max() < 31


def test_all_shapes_have_the_same_area_and_turn_about_their_middle() -> None:
    tables, deepest = distance_tables(256)
    axis = ((np.arange(256) + 0.5) / 128 - 1) * SPAN
    inside = tables > 0
    areas = inside.sum(axis=(1, 2)) * (2 * SPAN / 256) ** 2
    np.testing.assert_allclose(areas, np.pi * 0.74**2, rtol=0.02)
    assert np.abs((inside * axis).sum(axis=(1, 2)) / inside.sum(axis=(1, 2))).max() < 0.01
    assert np.abs((inside * axis[:, None]).sum(axis=(1, 2)) / inside.sum(axis=(1, 2))).max() < 0.01
    # Nothing is cut off by the table, and no distance grows faster than the way to it.
    assert (tables[:, [0, -1]] < 0).all() and (tables[:, :, [0, -1]] < 0).all()
    steepest = np.maximum(np.abs(np.diff(tables, axis=1)).max(), np.abs(np.diff(tables, axis=2)).max())
    assert steepest < 1.01 * 2 * SPAN / 256
    assert (deepest > 0.15).all()


def test_colors_and_pixels_tell_little_of_the_class() -> None:
    train, test = draw_scenes(np.arange(2000)), draw_scenes(np.arange(1000), split="test")
    for features in (color_statistics, coarse_pixels):
        probe = make_pipeline(StandardScaler(), RidgeClassifier(alpha=100))
        probe.fit(features(train.images), train.classes)
        assert probe.score(features(test.images), test.classes) < 0.25  # chance is 0.1


def color_statistics(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Histograms of the three channels, means and deviations, on every third pixel."""
    pixels = np.ascontiguousarray(images[:, ::3, ::3].reshape(len(images), -1, 3).transpose(0, 2, 1))
    levels = [np.count_nonzero(pixels >> 5 == level, axis=2) for level in range(8)]
    return np.concatenate((pixels.mean(axis=2), pixels.std(axis=2), *levels), axis=1)


def coarse_pixels(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    return images.reshape(len(images), 16, 4, 16, 4, 3).mean(axis=(2, 4)).reshape(len(images), -1)


def test_in_a_video_objects_keep_their_numbers_and_move_smoothly() -> None:
    video = draw_videos(np.arange(30), frames=24)
    worlds = worlds_of(30, stream="scenes/video")
    present = worlds.scenes.present
    frames = [at_frame(worlds, frame, SQUARE).objects for frame in range(24)]
    rows, columns = np.mgrid[:64, :64] + 0.5
    for scene, place in np.argwhere(present):
        number = present[scene, : place + 1].sum()
        for frame, objects in enumerate(frames):
            center, radius = 64 * objects.center[scene, place], 64 * objects.radius[scene, place]
            labeled = video.masks[scene, frame] == number
            assert np.all(np.hypot(rows - center[0], columns - center[1])[labeled] < 1.25 * radius + 1)
            assert frame > 0 or labeled.any()
    centers = np.stack([objects.center for objects in frames])
    assert np.abs(np.diff(centers, axis=0)).max() <= scene_worlds.SPEED + 1e-9
    assert np.median(np.linalg.norm(centers[-1] - centers[0], axis=-1)) > 0.1


def test_a_videos_frames_do_not_depend_on_how_many_are_drawn_or_with_which_others() -> None:
    long, short = draw_videos(np.arange(5), frames=9, seed=4), draw_videos(np.array([3]), frames=4, seed=4)
    assert np.array_equal(long.images[3:4, :4], short.images)
    assert np.array_equal(long.masks[3:4, :4], short.masks)


def test_distance_bins_begin_at_their_documented_thresholds() -> None:
    thresholds = np.linspace(1.9, 3.8, 7, dtype=np.float32)[1:-1]
    assert thresholds.round(2).tolist() == pytest.approx([2.22, 2.53, 2.85, 3.17, 3.48])
    assert nearest_bins(thresholds).tolist() == [1, 2, 3, 4, 5]
    assert nearest_bins(np.nextafter(thresholds, np.float32(0))).tolist() == [0, 1, 2, 3, 4]
    assert nearest_bins([1.9, 3.7999]).tolist() == [0, 5]


def test_no_scenes_is_an_empty_batch() -> None:
    batch = draw_scenes(np.arange(0), size=32)
    assert batch.images.shape == (0, 32, 32, 3)
    assert draw_videos(np.arange(0), frames=3).masks.shape == (0, 3, 64, 64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_scenes(np.arange(3), split="tset"), "split 'tset'. Did you mean 'test'"),
        (lambda: draw_scenes(np.arange(3), size=8), "8×8 pixels.*Use 16"),
        (lambda: draw_scenes(np.arange(3), size=(64, 10)), "64×10 pixels.*Use 16"),
        (lambda: draw_scenes(np.zeros((2, 2), np.int64)), r"shape \(2, 2\)"),
        (lambda: draw_scenes(np.array([0.5])), "whole numbers.*float64"),
        (lambda: draw_videos(np.arange(3), frames=0), "0 frames.*1 or more"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_reason(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        call()
