"""What every source of images can do, and sources made of arrays and of other sources."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from flexpredict.data.augmentation import Crops, crop_arrays
from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.listing import digest, digest_of

MOST_CLASSES = 1_000_000  # a number beyond is no class, whatever it is


class ImageSource(Protocol):
    """Images in a fixed order, any of which can be read at any time, and in any process."""

    name: str
    classes: tuple[str, ...] | None
    labels: Tensor | None  # int64, one an image; an index into `classes`, -1 where an image has none
    problems: list[UnreadableImage]  # what was found broken while listing; not counted in the length

    def __len__(self) -> int: ...

    def describe(self, index: int) -> str:
        """What a person would look for to find this image."""

    def encoded(self, index: int) -> Encoded:
        """The image as it is stored: the path or the content of a file, or pixels."""

    def fingerprint(self) -> str:
        """Another one if images were added, removed or changed."""

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        """Height and width of up to `sample` evenly spaced images, without decoding them."""

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        """One crop of each image: B 3 H W uint8, and the rows that could not be read (their pixels mean nothing)."""


@dataclass(eq=False)
class ArraySource:
    """Equally large images in memory. They are a tensor, which worker processes share."""

    name: str
    images: Tensor = field(repr=False)  # N H W 3 uint8
    classes: tuple[str, ...] | None = None
    labels: Tensor | None = field(default=None, repr=False)
    problems: list[UnreadableImage] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.images)

    def describe(self, index: int) -> str:
        return f"{self.name}, image {index}"

    def encoded(self, index: int) -> Encoded:
        pixels: Encoded = self.images[index].numpy()
        return pixels

    def fingerprint(self) -> str:
        return digest_of(self.images.numpy())

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        _, height, width, _ = self.images.shape
        return [(height, width)] * min(sample, len(self))

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        return crop_arrays(self.images.index_select(0, indices), crops, image_size), {}


class JoinedSource:
    """Several sources, one after the other. Classes of the same name are one class."""

    def __init__(self, sources: Sequence[ImageSource]) -> None:
        self.sources = list(sources)
        self.name = ", ".join(source.name for source in sources)
        self.problems = [problem for source in sources for problem in source.problems]
        self.ends = np.cumsum([len(source) for source in sources])
        self.classes, self.labels = _joined_labels(self.sources)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def describe(self, index: int) -> str:
        source, own = self._locate(index)
        return source.describe(own)

    def encoded(self, index: int) -> Encoded:
        source, own = self._locate(index)
        return source.encoded(own)

    def fingerprint(self) -> str:
        return digest([source.fingerprint() for source in self.sources])

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        """From each source as many as its share."""
        return [
            size for source in self.sources for size in source.sizes(max(1, round(sample * len(source) / len(self))))
        ]

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images = torch.empty(len(indices), 3, *image_size, dtype=torch.uint8)
        unreadable: dict[int, UnreadableImage] = {}
        of = np.searchsorted(self.ends, indices.numpy(), side="right")
        for number in np.unique(of).tolist():
            source, rows = self.sources[number], np.flatnonzero(of == number)
            own = indices[torch.from_numpy(rows)] - (int(self.ends[number]) - len(source))
            images[torch.from_numpy(rows)], failed = source.read(own, crops[rows], image_size)
            unreadable.update({int(rows[row]): failure for row, failure in failed.items()})
        return images, unreadable

    def _locate(self, index: int) -> tuple[ImageSource, int]:
        number = int(np.searchsorted(self.ends, index, side="right"))
        source = self.sources[number]
        return source, index - (int(self.ends[number]) - len(source))


def class_name(source: ImageSource, index: int) -> str:
    """The name of the class of an image; empty if it has none."""
    label = -1 if source.labels is None else int(source.labels[index])
    if label < 0:
        return ""
    return source.classes[label] if source.classes else str(label)


def _joined_labels(sources: list[ImageSource]) -> tuple[tuple[str, ...] | None, Tensor | None]:
    """Of sources that all have classes; if one has none, all its images would seem to be of none."""
    names = sorted({name for source in sources for name in source.classes or ()})
    labels = []
    for source in sources:
        if source.labels is None or source.classes is None:
            return None, None
        # The last entry is for images without a label, whose index is -1.
        renumbered = torch.tensor([*(names.index(name) for name in source.classes), -1])
        labels.append(renumbered[source.labels])
    return tuple(names), torch.cat(labels)
