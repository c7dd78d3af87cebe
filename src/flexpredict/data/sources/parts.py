"""Parts of a set of images: `DATA,part=0-0.1` is a tenth of DATA, and `DATA,part=0.1-1` is all the rest.

Which images are in a part depends on their labels and order alone: every class is divided in proportion, at random
but always in the same way, so parts that do not overlap have no image in common.
"""

import os
import re
from dataclasses import dataclass

import torch

from flexpredict.data.label_subsets import label_subset, strata
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.subset_source import SubsetSource
from flexpredict.errors import UserError

_OPTION = re.compile(r"(.*),part=([^,]*)((?:,\w+=[^,]*)*)", re.DOTALL)
_RANGE = re.compile(r"(\d*\.?\d+)-(\d*\.?\d+)")
_SEED = 0


@dataclass(frozen=True)
class Part:
    """From one share of the images to another, 0 … 1."""

    first: float
    last: float

    def __str__(self) -> str:
        return f"part={self.first:g}-{self.last:g}"


def named_part(data: str, part: Part) -> str:
    """The name of a part of `data`."""
    return f"{data},{part}"


def split_part(name: str) -> tuple[str, Part | None]:
    """`photos,part=0.1-1` -> `photos` and the part; None where the name has no such option."""
    found = None if os.path.exists(os.path.expanduser(name)) else _OPTION.fullmatch(name)
    if found is None:
        return name, None
    shares = _RANGE.fullmatch(found.group(2))
    part = Part(*map(float, shares.groups())) if shares else None
    if part is None or not 0 <= part.first < part.last <= 1:
        raise UserError(
            f"part={found.group(2)} in {name} must be a range between 0 and 1, such as part=0-0.1 for a tenth of the "
            "images and part=0.1-1 for all others."
        )
    return found.group(1) + found.group(3), part


def part_of(source: ImageSource, part: Part) -> SubsetSource:
    """The images of a part, in the order of the source."""
    chosen = torch.zeros(len(source), dtype=torch.bool)
    classes = strata(source.labels, len(source))
    # Of one seed, a smaller subset is contained in every larger one.
    chosen[label_subset(classes, part.last, _SEED)] = True
    if part.first:
        chosen[label_subset(classes, part.first, _SEED)] = False
    if not chosen.any():
        raise UserError(f"{part} of the {len(source)} images of {source.name} has no image. Make it larger.")
    subset = SubsetSource(source, chosen.nonzero()[:, 0])
    subset.name = named_part(source.name, part)
    return subset
