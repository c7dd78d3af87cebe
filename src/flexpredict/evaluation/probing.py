"""Linear and nearest-neighbor classifiers on frozen features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.evaluation.labeled_images import LabeledImages, listed, numbered_alike, with_labels
from flexpredict.evaluation.linear import linear_probe
from flexpredict.evaluation.probe import ProbeOptions
from flexpredict.evaluation.results import Result, Results, encoder_facts, mean_and_interval
from flexpredict.evaluation.shared_images import shared_images
from flexpredict.features.extraction import cached_features
from flexpredict.features.workspace import Workspace
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.probing import Probing

_USUAL_SHARES = (0.01, 0.1, 1.0)


def run_probe(
    encoder: ImageEncoder,
    train: ImageSource,
    test: ImageSource,
    how: Extraction | None = None,
    probing: Probing | None = None,
    *,
    fabric: Fabric | None = None,
    console: Console | None = None,
) -> Result:
    """Fit on labels of the training images, measure on all test images. Nothing is chosen on test images."""
    how, probing = how or Extraction(), probing or Probing()
    fabric, console = fabric or Fabric(accelerator="cpu", devices=1), console or Console(quiet=True)
    # Settings that cannot work are refused before hours of extraction.
    train_images, test_images, shares, lists = check_probe(train, test, probing)
    shared = shared_images(encoder, train_images.source, test_images.source, fabric, console)
    known = _features(encoder, train_images, how, fabric, console)
    asked = _features(encoder, test_images, how, fabric, console)
    subsets = {f"linear, {_percent(share)} labels": _subsets(known, share, probing) for share in shares}
    subsets |= {name: [torch.isin(known.indices, chosen).nonzero()[:, 0]] for name, chosen in lists.items()}
    numbers: dict[str, float] = {}
    details: dict[str, Any] = {}
    for name, chosen in subsets.items():
        fits = [
            linear_probe(
                known.vectors[rows], known.labels[rows], asked.vectors, asked.labels, l2=probing.l2, seed=probing.seed
            ).summary()
            for rows in chosen
        ]
        mean, half = mean_and_interval([100 * fit["accuracy"] for fit in fits])
        numbers[name] = mean
        details[name] = {"mean": mean, "interval_95": half, "subsets": fits}
    if probing.neighbors:
        name = f"{probing.neighbors}-NN"
        accuracy = knn_accuracy(known.vectors, known.labels, asked.vectors, asked.labels, k=probing.neighbors)
        numbers[name] = 100 * accuracy
        details[name] = {"mean": numbers[name], "interval_95": None}
    protocol = {
        **encoder_facts(encoder),
        **how.describe(encoder),
        "settings": ", ".join(filter(None, (how.settings(encoder), _unusual(probing)))),
        "train": known.counts(train.name),
        "test": asked.counts(test.name),
        **shared,
        "classes": len(torch.unique(known.labels)),
        "standardized": "by mean and deviation of the training features",
        "l2": "chosen on held-out training images" if probing.l2 is None else probing.l2,
        "labels": list(shares),
        "label_lists": [str(path) for path in probing.label_list or ()],
        "subsets_of_labels": probing.subsets,
        "neighbors": probing.neighbors,
        "seed": probing.seed,
        "seeds_of_subsets": list(_seeds(probing)),
    }
    return Result("probe", encoder.what, test.name, numbers, protocol, details)


@dataclass(frozen=True)
class ProbeTask:
    """Training and test images of one task."""

    task: str
    data: str
    train: ImageSource
    test: ImageSource


def run_probes(space: Workspace, tasks: Sequence[ProbeTask], asked: ProbeOptions, title: str) -> Results:
    """Run one probe for each task, and save each result at once, in case a later task is interrupted.

    All tasks are checked first, so a mistake in the last is found before the first is run.
    """
    if asked.labels is None:
        asked = replace(asked, labels=[1.0])
    for task in tasks:
        check_probe(task.train, task.test, asked)
    results = Results()
    for task in tasks:
        result = run_probe(
            space.encoder, task.train, task.test, asked, asked, fabric=space.fabric, console=space.console
        )
        result.task, result.data, result.title = task.task, task.data, title
        asked.save(result, space.fabric, alone=len(tasks) == 1)
        results.append(result)
    return results


def check_probe(
    train: ImageSource, test: ImageSource, probing: Probing
) -> tuple[LabeledImages, LabeledImages, list[float], dict[str, Tensor]]:
    """Images with the same classes, shares of the labels, and lists of images; refuses impossible settings."""
    train_images = with_labels(train, "training")
    test_images = numbered_alike(with_labels(test, "test"), train_images)
    shares = _shares(train_images, probing)
    return train_images, test_images, shares, _lists(train_images, test_images, probing)


@dataclass
class _LabeledFeatures:
    """Features of the images that could be read."""

    vectors: Tensor  # n D
    labels: Tensor  # n
    indices: Tensor  # n, on the CPU
    unreadable: int

    def counts(self, data: str) -> dict[str, Any]:
        return {"data": data, "images": len(self.labels), "unreadable": self.unreadable}


def _features(
    encoder: ImageEncoder, images: LabeledImages, how: Extraction, fabric: Fabric, console: Console
) -> _LabeledFeatures:
    found = cached_features(encoder, images.source, how, fabric, console)
    device = fitting_device(fabric)
    labels = images.labels[found.indices]
    return _LabeledFeatures(found.vectors.to(device), labels.to(device), found.indices, len(found.skipped))


def fitting_device(fabric: Fabric) -> torch.device:
    """Where classifiers are fitted: a GPU is many times faster; otherwise the CPU, which has float64."""
    return fabric.device if fabric.device.type == "cuda" else torch.device("cpu")


def _shares(images: LabeledImages, probing: Probing) -> list[float]:
    """The shares of labels to use; refuses those that leave out a class."""
    labels = images.labels
    classes = len(torch.unique(labels))
    shares = probing.labels
    if shares is None:
        shares = [share for share in _USUAL_SHARES if round(share * len(labels)) >= classes]
    for share in shares:
        if round(share * len(labels)) < classes:
            raise UserError(
                f"{_percent(share)} of the {len(labels):,} labels of {images.source.name} are"
                f" {round(share * len(labels))}, fewer than its {classes} classes, and each needs an image. Use more:"
                f" labels={min(1.0, _round_up(classes / len(labels))):g}."
            )
    if probing.neighbors > len(labels):
        raise UserError(
            f"neighbors={probing.neighbors}, but there are {len(labels)} training images in {images.source.name}. "
            "Use at most as many, or neighbors=0 to leave k-NN out."
        )
    return shares


def _lists(train: LabeledImages, test: LabeledImages, probing: Probing) -> dict[str, Tensor]:
    """The training images that each file lists; refuses files that leave out a class of the test images."""
    lists = {}
    paths = list(map(Path, probing.label_list or ()))
    for path in paths:
        chosen = listed(train.source, path)
        wanted, found = torch.unique(test.labels), torch.unique(train.labels[chosen])
        absent = wanted[~torch.isin(wanted, found)].tolist()
        if absent:
            raise UserError(
                f"{path} names no image of {len(absent)} of the {len(wanted)} classes that are tested, for example of"
                f" {train.classes[absent[0]]}. Add images of them to the list."
            )
        same_name = [other for other in paths if other.name == path.name]
        lists[f"linear, {path if len(same_name) > 1 else path.name}"] = chosen
    return lists


def _subsets(known: _LabeledFeatures, share: float, probing: Probing) -> list[Tensor]:
    if share == 1:
        return [torch.arange(len(known.labels))]
    # Numbered without gaps: a class may have lost all its images because they could not be read.
    _, dense = torch.unique(known.labels, return_inverse=True)
    return [label_subset(dense, share, seed) for seed in _seeds(probing)]


def _seeds(probing: Probing) -> range:
    return range(probing.seed, probing.seed + probing.subsets)


def _unusual(probing: Probing) -> str:
    """Settings other than the defaults, in words, unless the names of the numbers contain them."""
    said = {
        f"l2 {probing.l2:g}" if probing.l2 else "": probing.l2 is not None,
        f"{probing.subsets} subsets": probing.subsets != Probing.subsets,
        f"seed {probing.seed}": probing.seed != Probing.seed,
    }
    return ", ".join(words for words, unusual in said.items() if unusual)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _round_up(share: float) -> float:
    """Round up to one digit: 0.034 -> 0.04."""
    unit = 10.0 ** math.floor(math.log10(share))
    return math.ceil(share / unit) * unit
