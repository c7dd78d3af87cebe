"""What the demo measures, against the same measured in another way."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from tiny_demo import PROTOCOL as WHOLE

from flexpredict.data.scenes.scenes import draw_scenes, nearest_bins
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.opening import open_source
from flexpredict.demo.raw_pixels import RawPixels
from flexpredict.demo.table import MEASURES
from flexpredict.evaluation.linear import linear_probe
from flexpredict.model.location_share import location_share
from flexpredict.studies.ablations.measuring import Measuring, measure, undrawn_scenes

PATCH = 8
PROTOCOL = replace(WHOLE, train=400)  # 1 % of the labels are not measured here

pytestmark = pytest.mark.usefixtures("few_penalties")


@pytest.fixture(scope="module")
def train() -> ArraySource:
    source = open_source(PROTOCOL.train_data)
    assert isinstance(source, ArraySource)
    return source


@pytest.fixture(scope="module")
def test() -> ArraySource:
    source = open_source(PROTOCOL.test_data)
    assert isinstance(source, ArraySource)
    return source


def encoder() -> RawPixels:
    return RawPixels((PROTOCOL.size, PROTOCOL.size), PATCH)


def shrunk(images: torch.Tensor) -> np.ndarray:
    """images: B H W 3 uint8 -> B 8 8 3, each the mean of a square."""
    pixels = images.numpy().astype(np.float64) / 255
    count, height, width, _ = pixels.shape
    return pixels.reshape(count, 8, height // 8, 8, width // 8, 3).mean(axis=(2, 4))


def test_raw_pixels_are_means_of_squares_in_patches_at_the_places_of_the_encoders_patches(test: ArraySource) -> None:
    images = test.images[:5]
    (layer,) = encoder().layers(images.permute(0, 3, 1, 2).contiguous())
    means = shrunk(images)
    for row in range(4):
        for column in range(4):
            patch = means[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]  # B 2 2 3
            np.testing.assert_allclose(
                layer[:, 4 * row + column], patch.transpose(0, 3, 1, 2).reshape(5, -1), atol=1e-6
            )
    pooled = encoder().pooled(images.permute(0, 3, 1, 2).contiguous())
    np.testing.assert_allclose(np.sort(pooled, axis=1), np.sort(means.reshape(5, -1), axis=1), atol=1e-6)


def test_numbers_of_raw_pixels_are_those_of_probes_on_shrunk_images(
    train: ArraySource, test: ArraySource, tmp_path: Path
) -> None:
    how = Measuring((0.1, 1.0), subsets=1, images=PROTOCOL.location_images)
    numbers = measure(encoder(), tmp_path, train, test, how, Fabric(accelerator="cpu", devices=1))
    assert {*MEASURES} - {*numbers} == {"linear, 1 % labels"}, "it was not asked for"
    known, asked = (torch.from_numpy(shrunk(source.images)).flatten(1).float() for source in (train, test))
    truth = [
        draw_scenes(np.arange(first, first + count), size=PROTOCOL.size, split=split)
        for first, count, split in ((0, len(train), "train"), (PROTOCOL.first_test, len(test), "test"))
    ]
    answers = {
        "linear, 100 % labels": [torch.from_numpy(scenes.classes) for scenes in truth],
        "count": [torch.from_numpy(scenes.counts - 1) for scenes in truth],
        "distance": [torch.from_numpy(nearest_bins(scenes.nearest)) for scenes in truth],
    }
    for name, (of_train, of_test) in answers.items():
        assert numbers[name] == pytest.approx(100 * linear_probe(known, of_train, asked, of_test).accuracy, abs=1.01)
    patches = shrunk(test.images).reshape(-1, 4, 2, 4, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, 12)
    assert numbers["location share"] == pytest.approx(100 * location_share(torch.from_numpy(patches)), abs=1e-3)


def test_scenes_need_not_be_drawn_to_know_what_a_measure_depends_on(train: ArraySource, test: ArraySource) -> None:
    drawn = Measuring().described(train, test)
    assert drawn == Measuring().described(undrawn_scenes(train.name), undrawn_scenes(test.name))
