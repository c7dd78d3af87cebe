"""Depth: ridge regression on patches of the training images, measured on every known pixel of the test images."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from flexpredict.data.sources.image_source import evenly_spaced
from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.dense.encoded_sizes import EncodedSize, check_encoder
from flexpredict.evaluation.dense.patch_maps import PatchesWithMaps
from flexpredict.evaluation.dense.pictures import fitted_to, frame_of, side_by_side
from flexpredict.evaluation.dense.protocol import describe_features, require_enough
from flexpredict.evaluation.depth import DepthSettings
from flexpredict.evaluation.depth.maps import DepthImages, Depths
from flexpredict.evaluation.depth.regression import DepthHead, fit_depth
from flexpredict.evaluation.depth.scores import DepthErrors
from flexpredict.evaluation.overlap import warn_of_overlap
from flexpredict.evaluation.results import Result
from flexpredict.features.workspace import Workspace
from flexpredict.showing import numbers_table
from flexpredict.sizes import Size


class DepthResult(Result):
    """Shown beside the errors of always saying the mean depth of the training images."""

    def table(self) -> Table:
        digits = {"RMSE": 3, "AbsRel": 1, "δ1": 1}
        columns = {"linear": self.numbers, "mean depth": self.details["mean depth"]}
        return numbers_table(
            {
                f"{name} ({'m' if name == 'RMSE' else '%'})": {
                    column: f"{values[name]:.{places}f}" for column, values in columns.items()
                }
                for name, places in digits.items()
            }
        )


def measure_depth(
    space: Workspace,
    train: DepthImages,
    test: DepthImages,
    asked: DepthSettings,
) -> tuple[DepthResult, dict[str, NDArray[np.uint8]]]:
    """RMSE, AbsRel and δ1; and pictures of some test images, by name. All depth maps are read and checked first."""
    encoder, console = space.encoder, space.console
    require_enough(train)
    encoder.check_layers(asked.layers)
    size = EncodedSize(asked.image_size, encoder)
    surveys = [_survey(images, console) for images in (train, test)]
    overlap = warn_of_overlap(train.source, test.source, space.fabric, console)
    encoder = encoder.to(space.fabric.device).eval()
    check_encoder(encoder, size.of(surveys[0].first_size), "use another image_size")

    known, tested = (
        PatchesWithMaps(images, encoder, size, asked.extraction(), space.fabric.device, console)
        for images in (train, test)
    )
    head, limits = fit_depth(known), surveys[0].limits
    errors, of_mean, drawn = _measure(tested, head, limits, 0 if asked.out is None else asked.pictures)
    unusual = {f"up to {asked.max_depth} m": asked.max_depth is not None}
    protocol: dict[str, Any] = {
        **describe_features(encoder, asked, size, unusual),
        "train": known.counts(),
        "test": tested.counts(),
        "overlap": overlap,
        "scale": asked.scale,
        "max_depth": asked.max_depth,
        "target_of_a_patch": "the mean of its known pixels; it counts as much as it has known pixels",
        "penalty": head.readout.penalty,
        "chosen_on": "patches of held-out training images",
        "limits": limits,
        "measured_on": "all known pixels of each test image, averaged over images; patches up-sampled bilinearly",
    }
    candidates = [{"penalty": penalty, "mean_squared_error": error} for penalty, error in head.errors.items()]
    warnings = [warning for survey in surveys for warning in survey.warnings]
    result = DepthResult(
        "depth",
        encoder.what,
        test.name,
        errors.means(),
        protocol,
        {"mean depth": of_mean.means(), "candidates": candidates},
        title="Error of depth on the test images, frozen encoder",
        warnings=warnings,
    )
    return result, drawn


@dataclass(frozen=True)
class _Survey:
    first_size: Size
    limits: tuple[float, float]  # of all known depths
    warnings: list[str]


def _survey(images: DepthImages, console: Console) -> _Survey:
    """Looks through all depth maps; refuses images without any known depth."""
    nearest, farthest, empty, sizes = np.inf, 0.0, [], []
    for index, (size, depths) in enumerate(images.checked_maps(console)):
        sizes.append(size)
        if (known := depths[depths > 0]).size:
            nearest, farthest = min(nearest, float(known.min())), max(farthest, float(known.max()))
        else:
            empty.append(images.describe_map(index))
    if len(empty) == len(images):
        raise UserError(
            f"None of the {len(images)} depth maps of {images.name} has a known depth: all are 0, negative, infinite "
            "or beyond max_depth. Check the files and scale."
        )
    told = f"{len(empty)} of {len(images)} depth maps of {images.name} have no known depth: {some_of(empty)}."
    return _Survey(sizes[0], (nearest, farthest), [told] if empty else [])


def _measure(
    tested: PatchesWithMaps[np.float32],
    head: DepthHead,
    limits: tuple[float, float],
    pictures: int,
) -> tuple[DepthErrors, DepthErrors, dict[str, NDArray[np.uint8]]]:
    errors, of_mean = DepthErrors(), DepthErrors()
    shown = set(evenly_spaced(len(tested.images), pictures)) if pictures else set()
    drawn = {}
    for batch in tested:
        # A linear head may say what no training image had, even a negative depth.
        coarse = head.readout(batch.features)[..., 0].clamp(*limits)
        for row, (truth, index) in enumerate(zip(batch.maps, batch.indices, strict=True)):
            fine = F.interpolate(coarse[row][None, None], size=truth.shape, mode="bilinear", align_corners=False)
            predicted = fine[0, 0].float().cpu().numpy()
            errors.add(truth, predicted)
            of_mean.add(truth, np.full_like(truth, head.mean))
            if index in shown:
                name = tested.images.source.describe(index)
                frame = frame_of(tested.images.source.encoded(index), name)
                panels = (fitted_to(frame, _grays(depths, limits)) for depths in (truth, predicted))
                drawn[name] = side_by_side(frame, *panels)
    return errors, of_mean, drawn


def _grays(depths: Depths, limits: tuple[float, float]) -> NDArray[np.uint8]:
    """Near is bright; what is not known is black. H W -> H W 3."""
    share = (depths - limits[0]) / max(limits[1] - limits[0], 1e-9)
    gray = np.where(depths > 0, 255 - 200 * np.clip(share, 0, 1), 0).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)
