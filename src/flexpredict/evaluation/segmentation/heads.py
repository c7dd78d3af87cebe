"""Heads that give every patch a score for each class: logistic regression, and nearest neighbors."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation.dense.patches import PatchMaps, patch_of_pixels
from flexpredict.evaluation.index_masks import VOID
from flexpredict.evaluation.knn import Neighbors
from flexpredict.evaluation.linear import FittedProbe, fit_probe
from flexpredict.evaluation.segmentation import SegmentationSettings
from flexpredict.evaluation.segmentation.labels import Classes
from flexpredict.randomness import permutation, stream_key
from flexpredict.sizes import Grid

Head: TypeAlias = Callable[[Tensor], Tensor]  # features N D -> scores N C

_TEMPERATURE = 0.07
_NEVER = -1e30  # the score of a class that no patch was fitted on; finite, as infinities cannot be interpolated


@dataclass(frozen=True, eq=False)
class LabeledPatches:
    """Some patches of the training images."""

    features: Tensor  # N D
    labels: Tensor  # N, indices of classes
    images: Tensor  # N, the image of each


@dataclass(frozen=True, eq=False)
class Heads:
    """What is fitted."""

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
