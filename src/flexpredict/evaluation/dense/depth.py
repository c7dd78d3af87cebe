"""Depth: ridge regression on patches of the training images, measured on every known pixel of the test images."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor

from flexpredict.data.scenes.scenes import SceneBatch
from flexpredict.data.sources.derived import split_part
from flexpredict.errors import UserError, in_a_line, some_of
from flexpredict.evaluation.dense import DepthSettings
from flexpredict.evaluation.dense.images import (
    Gallery,
    MappedImages,
    Pixels,
    Role,
    folders_with_maps,
    scenes_with_maps,
)
from flexpredict.evaluation.dense.patches import (
    PatchesWithMaps,
    check_dense,
    dense_protocol,
    open_patches,
    patch_of_pixels,
)
from flexpredict.evaluation.results import Result
from flexpredict.evaluation.ridge import fit_readout
from flexpredict.evaluation.shared_images import shared_images
from flexpredict.features.workspace import Workspace
from flexpredict.named_options import split_options
from flexpredict.showing import numbers_table, say
from flexpredict.sizes import Grid

Depths: TypeAlias = NDArray[np.float32]  # H W, in meters; 0 where unknown
DepthImages: TypeAlias = MappedImages[np.float32]

_WHAT = "depth map"

_RATIO = 1.25


class DepthResult(Result):
    """Shown beside the errors of always predicting the mean depth of the training images."""

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
    for sentence in (warnings := warnings + more):
        say(space.console, f"WARNING: {sentence}")
    shared = shared_images(space.encoder, train.source, test.source, space.fabric, space.console)
    known, tested = open_patches(space, asked, size, train, test)
    readout, moments, candidates = fit_readout(_patches(known))
    mean = float(moments.mean()[-1])

    errors, of_mean = DepthErrors(), DepthErrors()
    gallery = Gallery(test, 0 if asked.out is None else asked.pictures, lambda _, depths: _grays(depths, limits))
    for batch in tested:
        for index, features, truth in batch.rows():
            # A linear head may predict depths that no training image had, even negative ones.
            coarse = readout(features)[..., 0].clamp(*limits)
            fine = F.interpolate(coarse[None, None], size=truth.shape, mode="bilinear", align_corners=False)
            predicted = fine[0, 0].float().cpu().numpy()
            errors.add(truth, predicted)
            of_mean.add(truth, np.full_like(truth, mean))
            gallery.add(index, truth, predicted)
    protocol: dict[str, Any] = {
        **dense_protocol(known, tested, {f"up to {asked.max_depth} m": asked.max_depth is not None}, shared),
        "scale": asked.scale,
        "max_depth": asked.max_depth,
        "target_of_a_patch": "the mean of its known pixels; it counts as much as it has known pixels",
        "penalty": readout.penalty,
        "chosen_on": "patches of held-out training images",
        "limits": limits,
        "measured_on": "all known pixels of each test image, averaged over images; patches up-sampled bilinearly",
    }
    details = {"mean depth": of_mean.means(), "candidates": candidates}
    title = "Error of depth on the test images, frozen encoder"
    result = DepthResult(
        "depth", space.encoder.what, test.name, errors.means(), protocol, details, title, warnings=warnings
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
    """Near is bright, unknown is black. H W -> H W 3."""
    share = (depths - limits[0]) / max(limits[1] - limits[0], 1e-9)
    gray = np.where(depths > 0, 255 - 200 * np.clip(share, 0, 1), 0).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


def _patches(known: PatchesWithMaps[np.float32]) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """For each image its number, and features, depths and weights (shares of known pixels) of its patches."""
    for batch in known:
        for index, features, depths in batch.rows():
            targets, shares = depths_of_patches(depths, batch.grid)
            used = shares > 0
            if used.any():
                yield index, features.flatten(0, 1)[used.to(features.device)], targets[used][:, None], shares[used]


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


def open_depth_images(data: str, role: Role, how: DepthSettings) -> DepthImages:
    """`IMAGES,depth=FOLDER`, whose files are 16-bit PNG or .npy with the names of the images; or `scenes:500`."""
    name, part = split_part(data)
    if name.partition(":")[0] == "scenes":
        return scenes_with_maps(name, role, partial(_near_depths, how.max_depth), _WHAT).part(part)
    path, options = split_options(name, ("depth",))
    if "depth" not in options:
        raise UserError(f"{data} names no depth maps. Write IMAGES,depth=FOLDER, or use scenes.")
    read = partial(read_depths, scale=how.scale, max_depth=how.max_depth)
    maps = Path(options["depth"]).expanduser()
    return folders_with_maps(Path(path).expanduser(), maps, (".png", ".npy"), read, _WHAT).part(part)


def read_depths(path: Path, scale: float, max_depth: float | None) -> Depths:
    """Read a 16-bit PNG (meters times `scale`) or a .npy (meters). Not finite, negative or too far is unknown."""
    try:
        depths = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _read_png(path, scale)
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"The depth map {path} cannot be read: {in_a_line(error)}. Copy or make it again.") from error
    depths = depths.squeeze()
    if depths.ndim != 2 or depths.dtype.kind not in "fiu":
        raise UserError(f"{path} holds {depths.dtype} {depths.shape}, but a depth map is a number for each pixel.")
    return _known(depths.astype(np.float32), max_depth)


def _read_png(path: Path, scale: float) -> Depths:
    with Image.open(path) as image:
        if not image.mode.startswith("I"):
            raise UserError(
                f"{path} is an image of mode {image.mode}, not a depth map, which is a grayscale PNG of 16 bits or a "
                ".npy file. Use the depth maps as they were published, not converted."
            )
        return (np.asarray(image).astype(np.float64) / scale).astype(np.float32)


def _near_depths(max_depth: float | None, scenes: SceneBatch) -> Depths:
    return _known(scenes.depth_maps(), max_depth)


def _known(depths: Depths, max_depth: float | None) -> Depths:
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(depths) & (depths > 0) & (depths <= (np.inf if max_depth is None else max_depth))
    return np.where(usable, depths, np.float32(0))
