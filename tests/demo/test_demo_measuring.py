"""What the demo measures, against the same measured in another way."""

import numpy as np
import pytest
import torch
from tiny_demo import PROTOCOL

from flexpredict.demo.measuring import RawPixels, Scenes, measure
from flexpredict.demo.table import MEASURES
from flexpredict.evaluation.linear import fit_probe, linear_probe
from flexpredict.model.location_share import location_share

PATCH = 8


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return Scenes.draw(PROTOCOL)


def shrunk(images: torch.Tensor) -> np.ndarray:
    """images: B H W 3 uint8 -> B 8 8 3, each the mean of a square."""
    pixels = images.numpy().astype(np.float64) / 255
    count, height, width, _ = pixels.shape
    return pixels.reshape(count, 8, height // 8, 8, width // 8, 3).mean(axis=(2, 4))


def test_raw_pixels_are_means_of_squares_in_patches_at_the_places_of_the_encoders_patches(scenes: Scenes) -> None:
    images = scenes.test.source.images[:5]
    encoder = RawPixels(PROTOCOL.size, PROTOCOL.pixels, PATCH)
    (layer,) = encoder.layers(images.permute(0, 3, 1, 2).contiguous())
    means = shrunk(images)
    for row in range(4):
        for column in range(4):
            patch = means[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]  # B 2 2 3
            np.testing.assert_allclose(
                layer[:, 4 * row + column], patch.transpose(0, 3, 1, 2).reshape(5, -1), atol=1e-6
            )
    pooled = encoder.pooled(images.permute(0, 3, 1, 2).contiguous())
    np.testing.assert_allclose(np.sort(pooled, axis=1), np.sort(means.reshape(5, -1), axis=1), atol=1e-6)


def test_numbers_of_raw_pixels_are_those_of_probes_on_shrunk_images(scenes: Scenes) -> None:
    numbers = measure(RawPixels(PROTOCOL.size, PROTOCOL.pixels, PATCH), scenes)
    assert numbers.keys() == MEASURES.keys()
    known, asked = (
        torch.from_numpy(shrunk(part.source.images)).flatten(1).float() for part in (scenes.train, scenes.test)
    )
    for name, of_train, of_test in (
        ("class_all_labels", scenes.train.classes, scenes.test.classes),
        ("count", scenes.train.counts, scenes.test.counts),
        ("distance", scenes.train.distances, scenes.test.distances),
    ):
        assert numbers[name] == pytest.approx(100 * linear_probe(known, of_train, asked, of_test).accuracy, abs=1.01)

    # The probe on unshifted scenes, tested on some scenes and on the same shifted by a patch: borders are reflected.
    images, classes = scenes.test.source.images[: PROTOCOL.shifted], scenes.test.classes[: PROTOCOL.shifted]
    probe = fit_probe(known, scenes.train.classes)

    def accuracy(of: np.ndarray) -> float:
        features = torch.from_numpy(shrunk(torch.from_numpy(of))).flatten(1).float()
        return 100 * float((probe.predict(features) == classes).double().mean())

    pixels, size = images.numpy(), PROTOCOL.size
    for name, by in (("lost_patch", PATCH), ("lost_half_patch", PATCH // 2)):
        down = np.pad(pixels, ((0, 0), (by, 0), (0, 0), (0, 0)), mode="reflect")[:, :size]
        right = np.pad(pixels, ((0, 0), (0, 0), (by, 0), (0, 0)), mode="reflect")[:, :, :size]
        lost = accuracy(pixels) - (accuracy(down) + accuracy(right)) / 2
        assert numbers[name] == pytest.approx(lost, abs=2.6)  # a scene or two on the border between classes

    patches = shrunk(images).reshape(-1, 4, 2, 4, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, 12)
    assert numbers["location_share"] == pytest.approx(100 * location_share(torch.from_numpy(patches)), abs=1e-3)
