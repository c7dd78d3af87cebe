"""Depth: ridge regression on patches of the training images, measured on every known pixel of the test images."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor

from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.dense.images import Gallery, Pixels
from flexpredict.evaluation.dense.patches import (
    HELD_OUT,
    PatchesWithMaps,
    check_dense,
    dense_protocol,
    open_patches,
    patch_of_pixels,
)
from flexpredict.evaluation.depth import DepthSettings
from flexpredict.evaluation.depth.maps import DepthImages, Depths
from flexpredict.evaluation.labeled_images import warn_of_overlap
from flexpredict.evaluation.results import Result
from flexpredict.evaluation.ridge import Moments, Readout, best_readout
from flexpredict.features.workspace import Workspace
from flexpredict.model.location_share import in_double
from flexpredict.showing import numbers_table
from flexpredict.sizes import Grid

_RATIO = 1.25


class DepthResult(Result):
    """Shown beside the errors of always saying the mean depth of the training images."""

    def table(self) -> Table:
        shown = {"RMSE": ("RMSE (m)", 3), "AbsRel": ("AbsRel (%)", 1), "δ1": ("δ1 (%)", 1)}
        columns = {"linear": self.numbers, "mean depth": self.details["mean depth"]}
        return numbers_table(
            {
                words: {column: f"{values[name]:.{places}f}" for column, values in columns.items()}
                for name, (words, places) in shown.items()
            }
        )


def measure_depth(
    space: Workspace, train: DepthImages, test: DepthImages, asked: DepthSettings
) -> tuple[DepthResult, Gallery]:
    """RMSE, AbsRel and δ1; and pictures of some test images. All depth maps are read and checked first."""
    size = check_dense(space.encoder, asked, train)
    (limits, warnings), (_, more) = (_survey(images, space.console) for images in (train, test))
    overlap = warn_of_overlap(train.source, test.source, space.fabric, space.console)
    known, tested = open_patches(space, asked, size, train, test)
    head = fit_depth(known)

    errors, of_mean = DepthErrors(), DepthErrors()
    gallery = Gallery(test, 0 if asked.out is None else asked.pictures, lambda _, depths: _grays(depths, limits))
    for batch in tested:
        for index, features, truth in batch.rows():
            # A linear head may say what no training image had, even a negative depth.
            coarse = head.readout(features)[..., 0].clamp(*limits)
            fine = F.interpolate(coarse[None, None], size=truth.shape, mode="bilinear", align_corners=False)
            predicted = fine[0, 0].float().cpu().numpy()
            errors.add(truth, predicted)
            of_mean.add(truth, np.full_like(truth, head.mean))
            gallery.add(index, truth, predicted)
    protocol: dict[str, Any] = {
        **dense_protocol(known, tested, {f"up to {asked.max_depth} m": asked.max_depth is not None}, overlap),
        "scale": asked.scale,
        "max_depth": asked.max_depth,
        "target_of_a_patch": "the mean of its known pixels; it counts as much as it has known pixels",
        "penalty": head.readout.penalty,
        "chosen_on": "patches of held-out training images",
        "limits": limits,
        "measured_on": "all known pixels of each test image, averaged over images; patches up-sampled bilinearly",
    }
    candidates = [{"penalty": penalty, "mean_squared_error": error} for penalty, error in head.errors.items()]
    details = {"mean depth": of_mean.means(), "candidates": candidates}
    title = "Error of depth on the test images, frozen encoder"
    result = DepthResult(
        "depth", space.encoder.what, test.name, errors.means(), protocol, details, title, warnings=warnings + more
    )
    return result, gallery


def _survey(images: DepthImages, console: Console) -> tuple[tuple[float, float], list[str]]:
    """The range of all known depths, and warnings; refuses images without any known depth."""
    nearest, farthest, empty = np.inf, 0.0, []
    for index, (_, depths) in enumerate(images.checked_maps(console)):
        if (known := depths[depths > 0]).size:
            nearest, farthest = min(nearest, float(known.min())), max(farthest, float(known.max()))
        else:
            empty.append(images.describe_map(index))
    if len(empty) == len(images):
        raise UserError(
            f"None of the {len(images)} depth maps of {images.name} has a known depth: all are 0, negative, infinite "
            "or beyond max_depth. Check the files and scale."
        )
    warning = f"{len(empty)} of {len(images)} depth maps of {images.name} have no known depth: {some_of(empty)}."
    return (nearest, farthest), [warning] if empty else []


def _grays(depths: Depths, limits: tuple[float, float]) -> Pixels:
    """Near is bright; what is not known is black. H W -> H W 3."""
    share = (depths - limits[0]) / max(limits[1] - limits[0], 1e-9)
    gray = np.where(depths > 0, 255 - 200 * np.clip(share, 0, 1), 0).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


@dataclass(frozen=True, eq=False)
class DepthHead:
    """From the features of a patch to its depth."""

    readout: Readout
    mean: float  # depth of the training images
    errors: dict[float, float]  # penalty -> mean squared error on held-out images


def fit_depth(known: PatchesWithMaps[np.float32]) -> DepthHead:
    """One pass, in constant memory. A patch counts as much as it has known pixels."""
    moments: tuple[Moments, ...] = ()  # of the images that are fitted, and of those held out
    for batch in known:
        if not moments:
            offset = F.pad(in_double(batch.features.mean(dim=(0, 1, 2))), (0, 1))
            moments = Moments(offset), Moments(offset)
        for index, features, depths in batch.rows():
            targets, shares = depths_of_patches(depths, batch.grid)
            used = shares > 0
            part = moments[index % HELD_OUT == HELD_OUT - 1]
            part.add(features.flatten(0, 1)[used.to(features.device)], targets[used][:, None], shares[used])
    fitted, held_out = moments
    readout, errors = best_readout(fitted, held_out, targets=1)
    return DepthHead(readout, float((fitted + held_out).mean()[-1]), errors)


def depths_of_patches(depths: Depths, grid: Grid) -> tuple[Tensor, Tensor]:
    """The mean of the known pixels of each patch, and the share of its pixels that are known: H W -> h·w, h·w."""
    cells, count = patch_of_pixels(depths.shape, grid).ravel(), grid[0] * grid[1]
    known = depths.ravel() > 0
    pixels = np.bincount(cells, minlength=count)
    known_pixels = np.bincount(cells[known], minlength=count)
    sums = np.bincount(cells[known], weights=depths.ravel()[known], minlength=count)
    mean, share = sums / np.maximum(known_pixels, 1), known_pixels / np.maximum(pixels, 1)
    return torch.from_numpy(mean), torch.from_numpy(share)


@dataclass
class DepthErrors:
    """RMSE, AbsRel and δ1 of each image over its known pixels, averaged over images."""

    of_images: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, truth: Depths, predicted: Depths) -> None:
        """H W each, in meters; pixels whose truth is 0 are ignored, and so is an image without any other."""
        known = truth > 0
        if known.any():
            true, given = truth[known].astype(np.float64), predicted[known].astype(np.float64)
            away, ratio = np.abs(given - true), np.maximum(given / true, true / given)
            rmse, relative, within = np.sqrt(np.mean(away**2)), np.mean(away / true), np.mean(ratio < _RATIO)
            self.of_images.append(np.array((rmse, 100 * relative, 100 * within)))

    def means(self) -> dict[str, float]:
        """RMSE in meters, the others in percent."""
        return dict(zip(("RMSE", "AbsRel", "δ1"), np.mean(self.of_images, axis=0).tolist(), strict=True))
