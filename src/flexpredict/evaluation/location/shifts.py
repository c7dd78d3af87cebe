"""What becomes of pooled features, and of a probe on them, when images are shifted by parts of a patch and more."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from flexpredict.data.sources.derived import ShiftedSource
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.errors import UserError
from flexpredict.features.extraction import Features
from flexpredict.sizes import Grid

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
    """What a shift does, on the average over directions."""

    shift: Shift
    cosine_distance: float  # between the features of an image and of the same image shifted
    relative: float  # to the mean distance between two different images
    accuracy: float | None  # of a probe that was fitted on unshifted images, 0 … 1


@dataclass(frozen=True)
class Robustness:
    """Of all shifts."""

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
                raise UserError(f"Images of {source.name} came or went while they were read. Run the command again.")
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
