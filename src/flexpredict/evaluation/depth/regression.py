"""From the features of a patch to its depth: ridge regression, from sums over all training images."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.evaluation.dense.patch_maps import PatchesWithMaps, patch_of_pixels
from flexpredict.evaluation.dense.protocol import HELD_OUT
from flexpredict.evaluation.depth.maps import Depths
from flexpredict.evaluation.ridge import Moments, Readout, best_readout
from flexpredict.model.location_share import in_double
from flexpredict.sizes import Grid


@dataclass(frozen=True, eq=False)
class DepthHead:
    """What is fitted."""

    readout: Readout
    mean: float  # depth of the training images
    errors: dict[float, float]  # penalty -> mean squared error on held-out images


def fit_depth(known: PatchesWithMaps[np.float32]) -> DepthHead:
    """One pass, in constant memory. A patch counts as much as it has known pixels."""
    moments: tuple[Moments, ...] = ()  # of the images that are fitted, and of those held out
    for batch in known:
        features, grid = batch.features.flatten(1, 2), (batch.features.shape[1], batch.features.shape[2])
        if not moments:
            offset = F.pad(in_double(features.mean(dim=(0, 1))), (0, 1))
            moments = Moments(offset), Moments(offset)
        for row, (depths, index) in enumerate(zip(batch.maps, batch.indices, strict=True)):
            targets, shares = depths_of_patches(depths, grid)
            used = shares > 0
            part = moments[index % HELD_OUT == HELD_OUT - 1]
            part.add(features[row][used.to(features.device)], targets[used][:, None], shares[used])
    fitted, held_out = moments
    readout, errors = best_readout(fitted, held_out, targets=1)
    return DepthHead(readout, float((fitted + held_out).mean()[-1]), errors)


def depths_of_patches(depths: Depths, grid: Grid) -> tuple[Tensor, Tensor]:
    """The mean of the known pixels of each patch, and the share of its pixels that are known: H W -> h·w, h·w."""
    cells, count = patch_of_pixels((depths.shape[0], depths.shape[1]), grid).ravel(), grid[0] * grid[1]
    known = depths.ravel() > 0
    pixels = np.bincount(cells, minlength=count)
    known_pixels = np.bincount(cells[known], minlength=count)
    sums = np.bincount(cells[known], weights=depths.ravel()[known], minlength=count)
    mean, share = sums / np.maximum(known_pixels, 1), known_pixels / np.maximum(pixels, 1)
    return torch.from_numpy(mean), torch.from_numpy(share)
