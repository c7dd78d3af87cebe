"""Where a patch is, as its features tell: location share, and row and column read out by a linear regression."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.evaluation.ridge import Moments, Readout, best_readout
from flexpredict.features.encoding import PatchBatch, patch_batches
from flexpredict.features.extraction import require_readable
from flexpredict.model.location_share import LocationShare, in_double
from flexpredict.progress import Counting
from flexpredict.settings.extraction import Extraction
from flexpredict.sizes import Grid

_AXES = ("row", "column")
_HELD_OUT = 5  # one image in so many chooses the penalty


@dataclass
class Patches:
    """The patches of all images of a source, each time anew: they are too many to be kept."""

    encoder: ImageEncoder
    source: ImageSource
    how: Extraction
    device: torch.device
    console: Console
    unreadable: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[PatchBatch]:
        """Batches of images that could be read."""
        skipped = []
        with Counting(self.console, f"patches of {self.source.name}", "images", len(self.source)) as counting:
            for batch in patch_batches(self.encoder, self.source, self.how, self.device):
                skipped += batch.skipped
                if len(batch.features):
                    yield batch
                counting.add(len(batch.features) + len(batch.skipped))
        require_readable(self.source, skipped)
        self.unreadable = len(skipped)


@dataclass(frozen=True)
class PlaceTold:
    """What features of test images tell of the place of a patch."""

    share: float  # location share, 0 … 1
    r2: dict[str, float]  # of row and column; a grid with one row has no row to tell
    error: float  # mean distance in patches between the place that was read out and the true one
    error_of_center: float  # the same, if the center is said of every patch

    @property
    def mean_r2(self) -> float:
        return sum(self.r2.values()) / len(self.r2)


def fit_places(patches: Patches, grid: Grid) -> tuple[Readout, dict[str, Any]]:
    """Row and column from the features of a patch; the penalty is chosen on a fifth of the images."""
    places = coordinates(grid)
    moments: tuple[Moments, ...] = ()  # of the images that are fitted, and of those held out
    for batch in patches:
        if not moments:
            mean = in_double(batch.features.mean(dim=(0, 1)))
            offset = torch.cat((mean, places.mean(dim=0).to(mean)))
            moments = Moments(offset), Moments(offset)
        held_out = batch.indices % _HELD_OUT == _HELD_OUT - 1
        for part, chosen in zip(moments, (~held_out, held_out), strict=True):
            features = batch.features[chosen.to(batch.features.device)]
            part.add(features.flatten(0, 1), places.repeat(len(features), 1))
    fitted, validation = moments
    readout, errors = best_readout(fitted, validation, targets=2)
    candidates = [{"penalty": penalty, "mean_squared_error": error} for penalty, error in errors.items()]
    return readout, {"penalty": readout.penalty, "candidates": candidates}


def measure_places(patches: Patches, grid: Grid, readout: Readout) -> PlaceTold:
    """Location share, and how well the read-out does, in one pass."""
    places = coordinates(grid)
    share: LocationShare | None = None
    squares, distance, count = torch.zeros(2, dtype=torch.float64), 0.0, 0
    for batch in patches:
        share = share or LocationShare(*batch.features.shape[1:])
        share.add(batch.features)
        away = readout(batch.features).cpu() - places
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
