"""Patches with a class each, to fit a head on: a sample of those of all training images, in constant memory."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.evaluation.dense.patch_maps import PatchMaps, patch_of_pixels
from flexpredict.evaluation.index_masks import VOID
from flexpredict.evaluation.segmentation.labels import Classes
from flexpredict.randomness import permutation, stream_key
from flexpredict.sizes import Grid


@dataclass(frozen=True, eq=False)
class LabeledPatches:
    """Some patches of the training images."""

    features: Tensor  # N D
    labels: Tensor  # N, indices of classes
    images: Tensor  # N, the image of each


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
        grid = (batch.features.shape[1], batch.features.shape[2])
        for row, (mask, index) in enumerate(zip(batch.maps, batch.indices, strict=True)):
            of_patches = torch.from_numpy(majority(classes.of_mask(mask), grid, len(classes)).ravel())
            labeled = (of_patches != VOID).nonzero()[:, 0]
            chosen = labeled[permutation(stream_key(seed, "labeled patches", index), len(labeled))[:most]]
            features.append(batch.features[row].flatten(0, 1)[chosen.to(batch.features.device)].to(device))
            labels.append(of_patches[chosen].long())
            owners.append(torch.full((len(chosen),), index))
    images_of_all = torch.cat(owners)
    order = images_of_all.argsort(stable=True)  # batches gather images of one size, but must not change the fit
    found = (torch.cat(features), torch.cat(labels).to(device), images_of_all.to(device))
    return LabeledPatches(*(rows[order.to(device)] for rows in found))


def majority(mask: NDArray[np.uint8], grid: Grid, classes: int) -> NDArray[np.uint8]:
    """The class of most labeled pixels of each patch; VOID where none is labeled. mask: H W -> h w."""
    labeled = mask != VOID
    cells = patch_of_pixels((mask.shape[0], mask.shape[1]), grid)[labeled] * classes + mask[labeled]
    counts = np.bincount(cells, minlength=grid[0] * grid[1] * classes).reshape(*grid, classes)
    winners: NDArray[np.uint8] = counts.argmax(axis=2).astype(np.uint8)
    winners[counts.sum(axis=2) == 0] = VOID
    return winners
