"""The images of a source, shifted by some pixels."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from flexpredict.data.augmentation import Crops
from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest


@dataclass(eq=False)
class ShiftedSource:
    """What is read of `source`, moved `down` and to the `right` by so many pixels of the size it is read at."""

    source: ImageSource
    down: int
    right: int
    name: str = field(init=False)
    classes: tuple[str, ...] | None = field(init=False, repr=False)
    labels: Tensor | None = field(init=False, repr=False)
    problems: list[UnreadableImage] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = f"{self.source.name}, shifted by {self.down}, {self.right} pixels"
        self.classes, self.labels, self.problems = self.source.classes, self.source.labels, self.source.problems

    def __len__(self) -> int:
        return len(self.source)

    def describe(self, index: int) -> str:
        return self.source.describe(index)

    def encoded(self, index: int) -> Encoded:
        """As it is stored, which is not shifted."""
        return self.source.encoded(index)

    def fingerprint(self) -> str:
        return digest([self.source.fingerprint(), f"shifted {self.down} {self.right}"])

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        return self.source.sizes(sample)

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images, unreadable = self.source.read(indices, crops, image_size)
        return shifted(images, self.down, self.right), unreadable


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """images: ... H W -> the same, moved by less than their height and width; what comes in is their reflection."""
    for dim, by in ((-2, down), (-1, right)):
        if by:
            images = images.index_select(dim, (torch.arange(images.shape[dim]) - by).abs())
    return images
