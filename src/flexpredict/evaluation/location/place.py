"""How well features predict the position of a patch: location share, and linear regression of row and column."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from flexpredict.data.loader import evaluation_batches
from flexpredict.data.sources.derived import ShiftedSource
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.ridge import Readout, fit_readout
from flexpredict.features.encoding import encode_patches, require_finite
from flexpredict.features.extraction import Features, require_readable
from flexpredict.model.location_share import LocationShare
from flexpredict.progress import Counting
from flexpredict.settings.extraction import Extraction
from flexpredict.sizes import Grid

_AXES = ("row", "column")


@dataclass
class Patches:
    """The patches of all images of a source, encoded again in each pass, as they would not fit into memory."""

    encoder: ImageEncoder
    source: ImageSource
    how: Extraction
    device: torch.device
    console: Console
    unreadable: int = field(default=0, init=False)

    @torch.no_grad()
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """For each batch of readable images: features b P D float32, and indices b of the images."""
        encoder, source, how = self.encoder.eval().to(self.device), self.source, self.how
        skipped = []
        with Counting(self.console, f"patches of {source.name}", "images", len(source)) as counting:
            for batch in evaluation_batches(source, how.size_for(encoder), how.batch_size, workers=how.workers):
                skipped += batch.skipped
                if len(batch.images):
                    features = encode_patches(encoder, batch.images.to(self.device), how)
                    require_finite(features.flatten(1), encoder, source.describe, batch.indices)
                    yield features, batch.indices
                counting.add(len(batch.images) + len(batch.skipped))
        require_readable(source, skipped)
        self.unreadable = len(skipped)

    def counts(self) -> dict[str, Any]:
        """For the protocol, after a pass."""
        images = len(self.source) - self.unreadable
        return {"data": self.source.name, "images": images, "unreadable": self.unreadable}


@dataclass(frozen=True)
class PlaceTold:
    """How well the features of test images predict the position of a patch."""

    share: float  # location share, 0 … 1
    r2: dict[str, float]  # of row and column; none for the row if the grid has only one
    error: float  # mean distance in patches between the predicted and the true position
    error_of_center: float  # the same for always predicting the center

    @property
    def mean_r2(self) -> float:
        return sum(self.r2.values()) / len(self.r2)


def fit_places(patches: Patches, grid: Grid) -> tuple[Readout, dict[str, Any]]:
    """Row and column from the features of a patch, and how its penalty was chosen."""
    places = coordinates(grid)
    images = (image for features, indices in patches for image in zip(indices.tolist(), features, strict=True))
    readout, _, candidates = fit_readout((index, features, places, None) for index, features in images)
    return readout, {"penalty": readout.penalty, "candidates": candidates}


def measure_places(patches: Patches, grid: Grid, readout: Readout) -> PlaceTold:
    """Location share, and how well the read-out does, in one pass."""
    places = coordinates(grid)
    share: LocationShare | None = None
    squares, distance, count = torch.zeros(2, dtype=torch.float64), 0.0, 0
    for features, _ in patches:
        share = share or LocationShare(*features.shape[1:])
        share.add(features)
        away = readout(features).cpu() - places
        squares += away.square().sum(dim=(0, 1))
        distance += float(away.norm(dim=2).sum())
        count += away.shape[0] * away.shape[1]
    assert share is not None, "a source without a readable image is refused"
    variance = places.var(dim=0, correction=0)
    r2 = {
        axis: 1 - float(squares[number] / count / variance[number])
        for number, axis in enumerate(_AXES)
        if grid[number] > 1
    }
    center = places - places.mean(dim=0)
    return PlaceTold(share.value(), r2, distance / count, float(center.norm(dim=1).mean()))


def coordinates(grid: Grid) -> Tensor:
    """Row and column of each patch, row by row: (H·W) 2 float64."""
    rows, columns = (torch.arange(length, dtype=torch.float64) for length in grid)
    return torch.cartesian_prod(rows, columns)


DIRECTIONS = ("down", "right")
_FRACTIONS = {"1/4 patch": 0.25, "1/2 patch": 0.5, "3/4 patch": 0.75}
_NEAR = 0.125  # patches that a shift may differ from its name, as it is a whole number of pixels
_MOST_PATCHES = 3
_NO_DISTANCE = 1e-9  # between images whose features are all the same


@dataclass(frozen=True)
class Shift:
    """name: in patches; pixels: by direction."""

    name: str
    pixels: dict[str, int]


@dataclass(frozen=True)
class Moved:
    """The effects of a shift, averaged over directions."""

    shift: Shift
    cosine_distance: float  # between the features of an image and of the same image shifted
    relative: float  # to the mean distance between two different images
    accuracy: float | None  # of a probe that was fitted on unshifted images, 0 … 1


@dataclass(frozen=True)
class Robustness:
    """The effects of all shifts."""

    distance_between_images: float  # mean of 1 - cosine similarity
    accuracy: float | None  # without a shift
    moved: list[Moved]


def plan_shifts(grid: Grid, patch_size: tuple[int, int], most: int | None) -> list[Shift]:
    """Quarters of a patch, to the nearest pixel, and 1 … most patches (by default 3, but at most half the grid)."""
    directions = [number for number in (0, 1) if grid[number] > 1]
    smallest = min(grid[number] for number in directions)
    if most is None:
        most = min(_MOST_PATCHES, smallest // 2)
    if not 0 <= most < smallest:
        raise UserError(
            f"shifts={most}, but images of {grid[0]}x{grid[1]} patches can be shifted by at most {smallest - 1} "
            f"before nothing is left of them. Use 0 (fractions of a patch only) to {smallest - 1}."
        )
    wanted = _FRACTIONS | {f"{count} patch{'es' * (count > 1)}": float(count) for count in range(1, most + 1)}
    shifts = []
    for name, patches in wanted.items():
        pixels = {DIRECTIONS[number]: math.floor(patches * patch_size[number] + 0.5) for number in directions}
        # Patches of a few pixels have no quarters.
        if all(abs(pixels[DIRECTIONS[number]] / patch_size[number] - patches) <= _NEAR for number in directions):
            shifts.append(Shift(name, pixels))
    return shifts


def robustness(
    source: ImageSource,
    shifts: list[Shift],
    features_of: Callable[[ImageSource], Features],
    predict: Callable[[Tensor], Tensor] | None = None,
    labels: Tensor | None = None,
) -> Robustness:
    """features_of: pooled features of a source; predict: a probe on them; labels: N, -1 for images that have none."""
    still = features_of(source)
    known = labels[still.indices] if labels is not None else None

    def accuracy_of(features: Features) -> float | None:
        if predict is None or known is None:
            return None
        asked = known >= 0
        return float((predict(features.vectors[asked]).cpu() == known[asked]).double().mean())

    between = distance_between(still.vectors)
    moved = []
    for shift in shifts:
        distances, accuracies = [], []
        for direction, pixels in shift.pixels.items():
            there = features_of(ShiftedSource(source, **{"down": 0, "right": 0, direction: pixels}))
            if not torch.equal(there.indices, still.indices):
                raise UserError(f"Images of {source.name} changed while they were read. Run the command again.")
            distances.append(distance(still.vectors, there.vectors))
            accuracies.append(accuracy_of(there))
        mean = sum(distances) / len(distances)
        measured = [accuracy for accuracy in accuracies if accuracy is not None]
        moved.append(
            Moved(
                shift,
                mean,
                mean / between if between > _NO_DISTANCE else math.nan,
                sum(measured) / len(measured) if measured else None,
            )
        )
    return Robustness(between, accuracy_of(still), moved)


def distance(ours: Tensor, theirs: Tensor) -> float:
    """Mean of 1 - cosine similarity, row by row: N D, N D."""
    return float(1 - F.cosine_similarity(ours.double(), theirs.double()).mean())


def distance_between(vectors: Tensor) -> float:
    """Mean of 1 - cosine similarity over all pairs of different rows: N D."""
    units = F.normalize(vectors.double(), dim=1)
    # The sum over all pairs is the square of the sum.
    similarities = units.sum(dim=0).square().sum() - units.square().sum()
    return float(1 - similarities / (len(units) * (len(units) - 1)))
