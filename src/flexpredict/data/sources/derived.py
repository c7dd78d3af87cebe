"""Sources made of other sources: several joined, some of the images, parts, and images shifted by some pixels."""

import os
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flexpredict.data.augmentation import Crops
from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.label_subsets import label_subset, strata
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest, digest_of
from flexpredict.errors import UserError
from flexpredict.sizes import Size

_OPTION = re.compile(r"(.*),part=([^,]*)((?:,\w+=[^,]*)*)", re.DOTALL)
_RANGE = re.compile(r"(\d*\.?\d+)-(\d*\.?\d+)")
_SEED = 0


class DerivedSource(ImageSource):
    """Images of other sources."""

    @abstractmethod
    def locate(self, index: int) -> tuple[ImageSource, int]:
        """The source of an image, and its index there."""

    def describe(self, index: int) -> str:
        source, own = self.locate(index)
        return source.describe(own)

    def encoded(self, index: int) -> Encoded:
        source, own = self.locate(index)
        return source.encoded(own)


class JoinedSource(DerivedSource):
    """Several sources, one after the other. Classes of the same name are one class."""

    def __init__(self, sources: Sequence[ImageSource]) -> None:
        super().__init__(name=", ".join(source.name for source in sources))
        self.problems = [problem for source in sources for problem in source.problems]
        self.classes, self.labels = _joined_labels(sources)
        self._sources = sources
        self._ends = np.cumsum([len(source) for source in sources])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def fingerprint(self) -> str:
        return digest([source.fingerprint() for source in self._sources])

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images = torch.empty(len(indices), 3, *image_size, dtype=torch.uint8)
        unreadable: dict[int, UnreadableImage] = {}
        owners = np.searchsorted(self._ends, indices.numpy(), side="right")
        for number in np.unique(owners).tolist():
            source, rows = self._sources[number], np.flatnonzero(owners == number)
            own = indices[torch.from_numpy(rows)] - (int(self._ends[number]) - len(source))
            images[torch.from_numpy(rows)], failed = source.read(own, crops[rows], image_size)
            unreadable.update({int(rows[row]): failure for row, failure in failed.items()})
        return images, unreadable

    def locate(self, index: int) -> tuple[ImageSource, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        source = self._sources[number]
        return source, index - (int(self._ends[number]) - len(source))


class SubsetSource(DerivedSource):
    """The images of `source` at `indices`, in that order. Classes keep their numbers."""

    def __init__(self, source: ImageSource, indices: Tensor) -> None:
        """indices: N int64."""
        labels = None if source.labels is None else source.labels[indices]
        super().__init__(name=source.name, classes=source.classes, labels=labels, problems=source.problems)
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def locate(self, index: int) -> tuple[ImageSource, int]:
        return self.source, int(self.indices[index])

    def fingerprint(self) -> str:
        return digest([self.source.fingerprint(), digest_of(self.indices.numpy())])

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        return self.source.read(self.indices[indices], crops, image_size)


class ShiftedSource(DerivedSource):
    """The images of `source` as they are read, then moved `down` and to the `right` by this many pixels.

    The stored images are not shifted.
    """

    def __init__(self, source: ImageSource, down: int, right: int) -> None:
        name = f"{source.name}, shifted by {down}, {right} pixels"
        super().__init__(name=name, classes=source.classes, labels=source.labels, problems=source.problems)
        self.source, self.down, self.right = source, down, right

    def __len__(self) -> int:
        return len(self.source)

    def locate(self, index: int) -> tuple[ImageSource, int]:
        return self.source, index

    def fingerprint(self) -> str:
        return digest([self.source.fingerprint(), f"shifted {self.down} {self.right}"])

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images, unreadable = self.source.read(indices, crops, image_size)
        return shifted(images, self.down, self.right), unreadable


@dataclass(frozen=True)
class Part:
    """The images between two shares of the data, 0 … 1: `DATA,part=0-0.1` is a tenth of DATA, `part=0.1-1` the rest.

    Which images are in a part depends on their labels and order alone: every class is divided in proportion, at
    random but always in the same way, so parts that do not overlap have no image in common.
    """

    first: float
    last: float

    def __str__(self) -> str:
        return f"part={self.first:g}-{self.last:g}"


def named_part(data: str, part: Part) -> str:
    """The name of a part of `data`."""
    return f"{data},{part}"


def split_part(name: str) -> tuple[str, Part | None]:
    """`photos,part=0.1-1` -> `photos` and the part; None if the name has no such option."""
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
    # With the same seed, a smaller subset is contained in every larger one.
    chosen[label_subset(classes, part.last, _SEED)] = True
    if part.first:
        chosen[label_subset(classes, part.first, _SEED)] = False
    if not chosen.any():
        raise UserError(f"{part} of the {len(source)} images of {source.name} has no image. Make it larger.")
    subset = SubsetSource(source, chosen.nonzero()[:, 0])
    subset.name = named_part(source.name, part)
    return subset


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """images: ... H W -> the same, moved by less than their height and width; free strips show their reflection."""
    for dim, by in ((-2, down), (-1, right)):
        if by:
            images = images.index_select(dim, (torch.arange(images.shape[dim]) - by).abs())
    return images


def _joined_labels(sources: Sequence[ImageSource]) -> tuple[tuple[str, ...] | None, Tensor | None]:
    """The joint classes and labels; None if any source has no classes, as its images would have no class."""
    names = sorted({name for source in sources for name in source.classes or ()})
    labels = []
    for source in sources:
        if source.labels is None or source.classes is None:
            return None, None
        # The last entry is for images without a label, whose index is -1.
        renumbered = torch.tensor([*(names.index(name) for name in source.classes), -1])
        labels.append(renumbered[source.labels])
    return tuple(names), torch.cat(labels)
