"""Segmentation: heads fitted on patches of training images, measured on every labeled pixel of test images."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation.dense import SegmentationSettings
from flexpredict.evaluation.dense.classes import (
    BACKGROUND,
    Classes,
    MaskedImages,
    MaskLabels,
    settle_classes,
    survey_masks,
    survey_warnings,
)
from flexpredict.evaluation.dense.images import Gallery
from flexpredict.evaluation.dense.patches import (
    PatchMaps,
    check_dense,
    dense_protocol,
    open_patches,
    patch_of_pixels,
)
from flexpredict.evaluation.index_masks import VOID, Mask, overlaid
from flexpredict.evaluation.knn import Neighbors
from flexpredict.evaluation.linear import FittedProbe, fit_probe
from flexpredict.evaluation.probing import fitting_device
from flexpredict.evaluation.results import Result
from flexpredict.evaluation.shared_images import shared_images
from flexpredict.features.workspace import Workspace
from flexpredict.randomness import permutation, stream_key
from flexpredict.showing import numbers_table, say
from flexpredict.sizes import Grid, Size

Head: TypeAlias = Callable[[Tensor], Tensor]  # features N D -> scores N C

_TEMPERATURE = 0.07
_NEVER = -1e30  # the score of a class that no patch was fitted on; finite, as infinities cannot be interpolated
_AT_ONCE = 1 << 24  # scores of pixels in memory
_MOST_LINES = 30


class SegmentationResult(Result):
    """Shown as one line for each class, the largest first, and the means over all."""

    def table(self) -> Table:
        classes = self.details["classes"]
        heads = list(next(iter(classes.values()))["IoU"])
        largest = sorted(classes, key=lambda name: -classes[name]["pixels"])[:_MOST_LINES]
        rows = {
            name: {"pixels": f"{100 * classes[name]['pixels']:.1f}"}
            | {head: "–" if iou is None else f"{100 * iou:.1f}" for head, iou in classes[name]["IoU"].items()}
            for name in classes
            if name in largest
        }
        if len(largest) < len(classes):
            rows[f"({len(classes) - len(largest)} smaller classes)"] = {"pixels": "", **dict.fromkeys(heads, "")}
        for what in ("mIoU", "pixel accuracy"):
            rows[what] = {"pixels": ""} | {head: f"{self.numbers[f'{head} {what}']:.1f}" for head in heads}
        return numbers_table(rows)


def measure_segmentation(
    space: Workspace, train: MaskedImages, test: MaskedImages, labels: MaskLabels, asked: SegmentationSettings
) -> tuple[SegmentationResult, Gallery]:
    """mIoU, IoU of each class and pixel accuracy; and pictures of some test images.

    Everything that could fail later is refused first: all masks are read once before any image is encoded.
    """
    size = check_dense(space.encoder, asked, train)
    surveys = survey_masks(train, "train", space.console), survey_masks(test, "test", space.console)
    classes = settle_classes(*surveys, labels)
    for sentence in (warnings := survey_warnings(*surveys, classes, size, space.encoder)):
        say(space.console, f"WARNING: {sentence}")
    shared = shared_images(space.encoder, train.source, test.source, space.fabric, space.console)
    known, tested = open_patches(space, asked, size, train, test)
    patches = sample_patches(known, classes, len(train), asked.patches, asked.seed, fitting_device(space.fabric))
    heads = fit_heads(patches, classes, asked)

    confusions = {name: Confusion(len(classes)) for name in heads.by_name}
    gallery = Gallery(test, 0 if asked.out is None else asked.pictures, overlaid)  # 0 is not tinted
    tinted_from = int(classes.names[0] == BACKGROUND)  # background is left as it is
    for batch in tested:
        flat = batch.features.flatten(0, 2)
        scores = {name: head(flat).unflatten(0, batch.features.shape[:-1]) for name, head in heads.by_name.items()}
        for row, (index, _, mask) in enumerate(batch.rows()):
            truth = classes.of_mask(mask)
            predicted = {name: winners(some[row], (mask.shape[0], mask.shape[1])) for name, some in scores.items()}
            for name, confusion in confusions.items():
                confusion.add(truth, predicted[name])
            shown = (np.where(truth == VOID, 0, one + 1 - tinted_from) for one in (truth, predicted["linear"]))
            gallery.add(index, *(one.astype(np.uint8) for one in shown))

    unusual = {
        f"{asked.patches} patches": asked.patches != SegmentationSettings.patches,
        f"l2 {asked.l2}": asked.l2 is not None,
        f"seed {asked.seed}": asked.seed != SegmentationSettings.seed,
    }
    protocol: dict[str, Any] = {
        **dense_protocol(known, tested, unusual, shared),
        "classes": len(classes),
        "patches": len(patches.labels),
        "target_of_a_patch": "the class of most of its labeled pixels",
        "l2": heads.probe.l2,
        "chosen_on": "patches of held-out training images" if asked.l2 is None else "given",
        "neighbors": asked.neighbors,
        "measured_on": "all labeled pixels of the test images; scores of patches are up-sampled bilinearly",
        "seed": asked.seed,
    }
    numbers = {}
    for name, confusion in confusions.items():
        numbers[f"{name} mIoU"] = 100 * confusion.mean_iou()
        numbers[f"{name} pixel accuracy"] = 100 * confusion.accuracy()
    candidates = [{"l2": l2, "accuracy": accuracy} for l2, accuracy in heads.probe.candidates.items()]
    details = {"classes": _by_class(confusions, classes), "candidates": candidates}
    title = "IoU of all labeled test pixels, frozen encoder (%)"
    result = SegmentationResult(
        "segmentation", space.encoder.what, test.name, numbers, protocol, details, title, warnings=warnings
    )
    return result, gallery


def _by_class(confusions: "dict[str, Confusion]", classes: Classes) -> dict[str, Any]:
    """Each class's share of the test pixels, and its IoU by each head (None if neither true nor predicted)."""
    shares = next(iter(confusions.values())).shares()
    ious = {name: confusion.iou() for name, confusion in confusions.items()}
    return {
        name: {
            "pixels": float(shares[number]),
            "IoU": {head: None if np.isnan(iou[number]) else float(iou[number]) for head, iou in ious.items()},
        }
        for number, name in enumerate(classes.names)
    }


@dataclass(eq=False)
class Confusion:
    """The number of pixels of each true class that were predicted as each class."""

    classes: int
    counts: NDArray[np.int64] = field(init=False)  # C C: true class, predicted class

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.classes, self.classes), np.int64)

    def add(self, truth: Mask, predicted: Mask) -> None:
        """H W each; pixels whose truth is VOID are ignored."""
        labeled = truth != VOID
        pairs = truth[labeled].astype(np.int64) * self.classes + predicted[labeled]
        self.counts += np.bincount(pairs, minlength=self.classes**2).reshape(self.counts.shape)

    def iou(self) -> NDArray[np.float64]:
        """IoU of each class; NaN for a class that neither occurs nor is predicted."""
        right = self.counts.diagonal()
        union = self.counts.sum(axis=0) + self.counts.sum(axis=1) - right
        return np.where(union > 0, right / np.maximum(union, 1), np.nan)

    def mean_iou(self) -> float:
        """Mean IoU over the classes that occur or are predicted."""
        return float(np.nanmean(self.iou()))

    def accuracy(self) -> float:
        """The share of pixels that are right."""
        return float(self.counts.trace() / self.counts.sum())

    def shares(self) -> NDArray[np.float64]:
        """The share of each class in all pixels."""
        shares: NDArray[np.float64] = self.counts.sum(axis=1) / self.counts.sum()
        return shares


def winners(scores: Tensor, size: Size) -> Mask:
    """The class with the highest score at each pixel, bilinear between the patches. scores: h w C -> H W."""
    best = torch.full(size, -torch.inf, device=scores.device)
    classes = torch.zeros(size, dtype=torch.uint8, device=scores.device)
    at_once = max(1, _AT_ONCE // (size[0] * size[1]))
    for first in range(0, scores.shape[2], at_once):
        some = scores[:, :, first : first + at_once].permute(2, 0, 1)[None].float()
        fine = F.interpolate(some, size=size, mode="bilinear", align_corners=False)[0]
        # One class at a time: argmax along the first axis takes many times as long.
        for number, plane in enumerate(fine, first):
            classes.masked_fill_(plane > best, number)
            best = torch.maximum(best, plane)
    found: Mask = classes.cpu().numpy()
    return found


@dataclass(frozen=True, eq=False)
class LabeledPatches:
    """Some patches of the training images."""

    features: Tensor  # N D
    labels: Tensor  # N, indices of classes
    images: Tensor  # N, the image of each


@dataclass(frozen=True, eq=False)
class Heads:
    """The fitted heads."""

    by_name: dict[str, Head]
    probe: FittedProbe  # the linear one


def fit_heads(known: LabeledPatches, classes: Classes, how: SegmentationSettings) -> Heads:
    """The linear head, its penalty chosen on held-out images; and k-NN, if it is wanted."""
    found = torch.unique(known.labels)
    if len(found) < 2:
        raise UserError(
            f"All {len(known.labels)} training patches are mostly {classes.names[int(found[0])]}, so there is "
            "nothing to tell apart. Use a larger image_size, or more patches."
        )
    if how.neighbors > len(known.labels):
        raise UserError(
            f"neighbors={how.neighbors}, but there are {len(known.labels)} training patches. Use at most as many, or "
            "neighbors=0 to leave k-NN out."
        )
    probe = fit_probe(known.features, known.labels, l2=how.l2, groups=known.images)

    def linear(features: Tensor) -> Tensor:
        logits = probe.classifier.logits(features)
        scores = logits.new_full((len(logits), len(classes)), _NEVER)
        scores[:, probe.values] = logits
        return scores

    heads: dict[str, Head] = {"linear": linear}
    if how.neighbors:
        voters = Neighbors(known.features, known.labels, len(classes), how.neighbors, _TEMPERATURE)
        heads[f"{how.neighbors}-NN"] = voters.votes
    return Heads(heads, probe)


def sample_patches(
    batches: Iterable[PatchMaps[np.uint8]],
    classes: Classes,
    images: int,
    patches: int,
    seed: int,
    device: torch.device,
) -> LabeledPatches:
    """About `patches` labeled patches, equally many of each of the `images`, and at least one.

    Which ones depends on the seed and the image alone, not on batches.
    """
    most = max(1, -(-patches // images))
    features, labels, owners = [], [], []
    for batch in batches:
        for index, of_image, mask in batch.rows():
            of_patches = torch.from_numpy(majority(classes.of_mask(mask), batch.grid, len(classes)).ravel())
            labeled = (of_patches != VOID).nonzero()[:, 0]
            chosen = labeled[permutation(stream_key(seed, "labeled patches", index), len(labeled))[:most]]
            features.append(of_image.flatten(0, 1)[chosen.to(of_image.device)].to(device))
            labels.append(of_patches[chosen].long())
            owners.append(torch.full((len(chosen),), index))
    images_of_all = torch.cat(owners)
    order = images_of_all.argsort(stable=True)  # batches gather images of one size, but must not change the fit
    found = (torch.cat(features), torch.cat(labels).to(device), images_of_all.to(device))
    return LabeledPatches(*(rows[order.to(device)] for rows in found))


def majority(mask: NDArray[np.uint8], grid: Grid, classes: int) -> NDArray[np.uint8]:
    """The class of most labeled pixels of each patch; VOID where none is labeled. mask: H W -> h w."""
    labeled = mask != VOID
    cells = patch_of_pixels(mask.shape, grid)[labeled] * classes + mask[labeled]
    counts = np.bincount(cells, minlength=grid[0] * grid[1] * classes).reshape(*grid, classes)
    winners: NDArray[np.uint8] = counts.argmax(axis=2).astype(np.uint8)
    winners[counts.sum(axis=2) == 0] = VOID
    return winners
