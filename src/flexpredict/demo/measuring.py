"""What features are worth: the three things asked about scenes, the location in them, and shifts of the images."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.data.scenes.scenes import draw_scenes, nearest_bins
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.image_source import ArraySource, ImageSource
from flexpredict.demo.recipe import Protocol
from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.evaluation.linear import fit_probe, linear_probe
from flexpredict.evaluation.location.place import plan_shifts, robustness
from flexpredict.features.encoding import patch_batches
from flexpredict.features.extraction import Features, extract_features
from flexpredict.model.location_share import LocationShare
from flexpredict.settings.extraction import Extraction, Pooling

_SHIFTS = {"1/2 patch": "lost_half_patch", "1 patch": "lost_patch"}


@dataclass(frozen=True)
class LabeledScenes:
    """Scenes with the three things that are asked about them."""

    source: ArraySource  # its labels are the classes
    classes: Tensor
    counts: Tensor  # of objects, less one
    distances: Tensor  # of the nearest object, in bins


@dataclass(frozen=True)
class Scenes:
    """To fit on, and to test on."""

    train: LabeledScenes
    test: LabeledScenes
    protocol: Protocol

    @classmethod
    def draw(cls, protocol: Protocol) -> "Scenes":
        train = _labeled("train", 0, protocol.train, protocol.size)
        test = _labeled("test", protocol.first_test, protocol.test, protocol.size)
        return cls(train, test, protocol)


def measure(encoder: ImageEncoder, scenes: Scenes) -> dict[str, float]:
    """All in percent. Everything is fitted and chosen on training scenes."""
    train, test, protocol = scenes.train, scenes.test, scenes.protocol
    known, asked = _pooled(encoder, train.source).vectors, _pooled(encoder, test.source).vectors
    classifier = fit_probe(known, train.classes)
    subsets = [label_subset(train.classes, 0.01, seed) for seed in range(protocol.label_subsets)]
    few = [linear_probe(known[rows], train.classes[rows], asked, test.classes).accuracy for rows in subsets]
    some = SubsetSource(test.source, torch.arange(min(protocol.shifted, len(test.source))))
    shifts = [shift for shift in plan_shifts(_grid(encoder), encoder.patch_size, 1) if shift.name in _SHIFTS]
    shifted = robustness(some, shifts, lambda source: _pooled(encoder, source), classifier.predict, some.labels)
    assert shifted.accuracy is not None
    shares = {
        "class_all_labels": float((classifier.predict(asked) == test.classes).double().mean()),
        "class_1_percent": sum(few) / len(few),
        "class_knn": knn_accuracy(known, train.classes, asked, test.classes),
        "count": linear_probe(known, train.counts, asked, test.counts).accuracy,
        "distance": linear_probe(known, train.distances, asked, test.distances).accuracy,
        "location_share": _location_share(encoder, some),
        **{_SHIFTS[moved.shift.name]: shifted.accuracy - (moved.accuracy or 0.0) for moved in shifted.moved},
    }
    return {name: round(100 * share, 3) for name, share in shares.items()}


class RawPixels(ImageEncoder):
    """Scenes themselves, shrunk, as if they were features: what there is to be had without any encoder.

    Args:
        size: height and width of the scenes.
        shrunk: height and width of what they are shrunk to.
        patch_size: of encoders to compare with; the patches of shrunk scenes are at the same places.
    """

    def __init__(self, size: int, shrunk: int, patch_size: int) -> None:
        cell = shrunk * patch_size // size
        pixels = f"raw pixels, {shrunk}x{shrunk}"
        super().__init__(
            pixels, pixels, 3 * cell * cell, 1, (patch_size, patch_size), (size, size), "mean", (0.0,) * 3, (1.0,) * 3
        )
        self._size, self._cell = shrunk, cell

    def _pooled(
        self, pixels: Tensor, count: int, pooling: Pooling | None, layers: list[Tokens] | None = None
    ) -> Tensor:
        """Every pixel is a feature: nothing is averaged over the image."""
        return self._tokens(pixels, count)[0].patches.flatten(1)

    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        shrunk = F.adaptive_avg_pool2d(pixels, self._size)
        return [Tokens(F.unfold(shrunk, self._cell, stride=self._cell).mT, None)]


def _labeled(split: str, first: int, count: int, size: int) -> LabeledScenes:
    drawn = draw_scenes(np.arange(first, first + count), size=size, split=split)
    classes = torch.from_numpy(drawn.classes)
    return LabeledScenes(
        ArraySource(f"scenes ({split})", torch.from_numpy(drawn.images), labels=classes),
        classes,
        torch.from_numpy(drawn.counts) - 1,
        torch.from_numpy(nearest_bins(drawn.nearest)),
    )


def _pooled(encoder: ImageEncoder, source: ImageSource) -> Features:
    return extract_features(encoder, source)


def _grid(encoder: ImageEncoder) -> tuple[int, int]:
    (height, width), (patch_height, patch_width) = encoder.image_size, encoder.patch_size
    return height // patch_height, width // patch_width


def _location_share(encoder: ImageEncoder, source: ImageSource) -> float:
    rows, columns = _grid(encoder)
    share = LocationShare(rows * columns, encoder.dim)
    for batch in patch_batches(encoder, source, Extraction()):
        share.add(batch.features)
    return share.value()
