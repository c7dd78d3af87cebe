"""`flexpredict probe`: what a linear classifier and nearest neighbours make of frozen features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.frozen import FrozenEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.intervals import mean_and_interval
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.evaluation.labelled_images import LabelledImages, listed, numbered_alike, with_labels
from flexpredict.evaluation.linear import linear_probe
from flexpredict.evaluation.results import Result
from flexpredict.features.extraction import Extraction, cached_features

_USUAL_SHARES = (0.01, 0.1, 1.0)


@dataclass(frozen=True)
class Probing:
    """Which labels are used, and how.

    Args:
        labels: shares of the training labels, for example (0.01, 0.1, 1.0); fewer than all are drawn by class (by
            default these three, but none that is too small to have an image of each class).
        subsets: how many times each share below 1 is drawn; numbers are means over these, with 95 % intervals.
        label_lists: text files of image names, one a line, each of which is a subset (as the published 1 % lists).
        neighbours: k of the k-NN classifier, by cosine similarity, weighted as in DINO's protocol; 0 for none.
        l2: weight of ‖W‖²/2; by default chosen on held-out training images.
        seed: of the subsets, and of what is held out.
    """

    labels: tuple[float, ...] | None = None
    subsets: int = 5
    label_lists: tuple[Path, ...] = ()
    neighbours: int = 20
    l2: float | None = None
    seed: int = 0


def probe(
    encoder: FrozenEncoder,
    train: ImageSource,
    test: ImageSource,
    how: Extraction | None = None,
    probing: Probing | None = None,
    *,
    fabric: Fabric | None = None,
    console: Console | None = None,
    task: str = "probe",
) -> Result:
    """Fit on labels of the training images, measure on all test images. Nothing is chosen on those."""
    how, probing = how or Extraction(), probing or Probing()
    fabric, console = fabric or Fabric(accelerator="cpu", devices=1), console or Console(quiet=True)
    # What is wrong with the settings is said before hours of extraction.
    train_images, test_images, shares, lists = checked(train, test, probing)
    known = _features(encoder, train_images, how, fabric, console)
    asked = _features(encoder, test_images, how, fabric, console)
    subsets = {f"linear, {_per_cent(share)} labels": _subsets(known, share, probing) for share in shares}
    subsets |= {name: [torch.isin(known.indices, chosen).nonzero()[:, 0]] for name, chosen in lists.items()}
    numbers: dict[str, float] = {}
    details: dict[str, Any] = {}
    for name, chosen in subsets.items():
        fits = [_fit(known, asked, rows, probing) for rows in chosen]
        mean, half = mean_and_interval([100 * fit["accuracy"] for fit in fits])
        numbers[name] = mean
        details[name] = {"mean": mean, "interval_95": half, "subsets": fits}
    if probing.neighbours:
        name = f"{probing.neighbours}-NN"
        accuracy = knn_accuracy(known.vectors, known.labels, asked.vectors, asked.labels, k=probing.neighbours)
        numbers[name] = 100 * accuracy
        details[name] = {"mean": numbers[name], "interval_95": None}
    protocol = {
        "encoder": encoder.name,
        **how.describe(encoder),
        "settings": ", ".join(filter(None, (how.settings(encoder), f"l2 {probing.l2:g}" if probing.l2 else ""))),
        "train": {"data": train.name, "images": len(known.labels), "unreadable": known.unreadable},
        "test": {"data": test.name, "images": len(asked.labels), "unreadable": asked.unreadable},
        "classes": len(torch.unique(known.labels)),
        "standardised": "by mean and deviation of the training features",
        "l2": "chosen on held-out training images" if probing.l2 is None else probing.l2,
        "labels": list(shares),
        "label_lists": [str(path) for path in probing.label_lists],
        "subsets_of_labels": probing.subsets,
        "neighbours": probing.neighbours,
        "seed": probing.seed,
        "seeds_of_subsets": list(_seeds(probing)),
    }
    return Result(task, encoder.what, test.name, numbers, protocol, details)


def checked(
    train: ImageSource, test: ImageSource, probing: Probing
) -> tuple[LabelledImages, LabelledImages, tuple[float, ...], dict[str, Tensor]]:
    """Images whose labels mean the same, shares of them, and lists; refuses what a probe could not do."""
    train_images = with_labels(train, "training")
    test_images = numbered_alike(with_labels(test, "test"), train_images)
    shares = _shares(train_images, probing)
    return train_images, test_images, shares, _lists(train_images, test_images, probing)


@dataclass
class _Labelled:
    """Features of the images that could be read."""

    vectors: Tensor  # n D
    labels: Tensor  # n
    indices: Tensor  # n, on the CPU
    unreadable: int


def _features(
    encoder: FrozenEncoder, images: LabelledImages, how: Extraction, fabric: Fabric, console: Console
) -> _Labelled:
    found = cached_features(encoder, images.source, how, fabric, console)
    # What is fitted on a GPU is fitted there many times faster; elsewhere the CPU, which has float64, is the place.
    device = fabric.device if fabric.device.type == "cuda" else torch.device("cpu")
    labels = images.labels[found.indices]
    return _Labelled(found.vectors.to(device), labels.to(device), found.indices, len(found.skipped))


def _shares(images: LabelledImages, probing: Probing) -> tuple[float, ...]:
    """The shares of labels to be used; refuses what cannot be done."""
    labels = images.labels
    classes = len(torch.unique(labels))
    shares = probing.labels
    if shares is None:
        shares = tuple(share for share in _USUAL_SHARES if round(share * len(labels)) >= classes)
    for share in shares:
        if not 0 < share <= 1:
            raise UserError(f"labels {share} is not a share of the labels: use 0.01 for 1 %, up to 1.")
        if round(share * len(labels)) < classes:
            raise UserError(
                f"{_per_cent(share)} of the {len(labels):,} labels of {images.source.name} are"
                f" {round(share * len(labels))}, fewer than its {classes} classes, and each needs an image. Use more:"
                f" --labels {min(1.0, _round_up(classes / len(labels))):g}."
            )
    if probing.subsets < 1:
        raise UserError(f"subsets is {probing.subsets}; use at least 1.")
    if not 0 <= probing.neighbours <= len(labels):
        raise UserError(
            f"neighbours is {probing.neighbours}, but there are {len(labels)} training images in "
            f"{images.source.name}: use up to as many, or --neighbours 0 to leave k-NN out."
        )
    if probing.l2 is not None and not probing.l2 > 0:
        raise UserError(f"l2 is {probing.l2:g}; it must be positive. Leave it out to have it chosen.")
    return shares


def _lists(train: LabelledImages, test: LabelledImages, probing: Probing) -> dict[str, Tensor]:
    """Training images that each file names; refuses files that leave out a class of the test images."""
    lists = {}
    for path in probing.label_lists:
        chosen = listed(train.source, path)
        wanted, found = torch.unique(test.labels), torch.unique(train.labels[chosen])
        absent = wanted[~torch.isin(wanted, found)].tolist()
        if absent:
            raise UserError(
                f"{path} names no image of {len(absent)} of the {len(wanted)} classes that are tested, for example of"
                f" {train.classes[absent[0]]}: nothing can be right about them. Add images of them to the list."
            )
        same_name = [other for other in probing.label_lists if other.name == path.name]
        lists[f"linear, {path if len(same_name) > 1 else path.name}"] = chosen
    return lists


def _subsets(known: _Labelled, share: float, probing: Probing) -> list[Tensor]:
    if share == 1:
        return [torch.arange(len(known.labels))]
    # Classes without an image, which a subset cannot have, are left out of the numbering.
    _, dense = torch.unique(known.labels, return_inverse=True)
    return [label_subset(dense, share, seed) for seed in _seeds(probing)]


def _seeds(probing: Probing) -> range:
    return range(probing.seed, probing.seed + probing.subsets)


def _fit(known: _Labelled, asked: _Labelled, rows: Tensor, probing: Probing) -> dict[str, Any]:
    fitted = linear_probe(
        known.vectors[rows], known.labels[rows], asked.vectors, asked.labels, l2=probing.l2, seed=probing.seed
    )
    return fitted.summary()


def _per_cent(share: float) -> str:
    return f"{100 * share:g} %"


def _round_up(share: float) -> float:
    """To one digit: 0.034 -> 0.04."""
    unit = 10.0 ** math.floor(math.log10(share))
    return math.ceil(share / unit) * unit


def table_rows(results: Sequence[Result]) -> dict[str, dict[str, str]]:
    """Means, and intervals where there are any: a line for each number of one result, or for each of many results."""
    shown = [
        {
            name: _with_interval(value, result.details.get(name, {}).get("interval_95"))
            for name, value in result.numbers.items()
        }
        for result in results
    ]
    if len(results) == 1:
        return {name: {results[0].data: number} for name, number in shown[0].items()}
    tasks = {result.task for result in results}
    return {
        result.task if len(tasks) == len(results) else result.data: numbers
        for result, numbers in zip(results, shown, strict=True)
    }


def _with_interval(mean: float, half: float | None) -> str:
    return f"{mean:.2f}" if half is None else f"{mean:.2f} ± {half:.2f}"
