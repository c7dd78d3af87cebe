"""Images as they are stored, each decoded when it is asked for: what folders, shards and tables have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from flexpredict.data.augmentation import Crops
from flexpredict.data.decoding import Encoded, UnreadableImage, decode, read_size
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.workers import set_current_image


@dataclass(eq=False, kw_only=True)
class EncodedImages(ABC):
    """An `ImageSource` that knows where each image is, and that reads it from there."""

    name: str
    classes: tuple[str, ...] | None = None
    labels: Tensor | None = field(default=None, repr=False)
    problems: list[UnreadableImage] = field(default_factory=list, repr=False)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def describe(self, index: int) -> str: ...

    @abstractmethod
    def encoded(self, index: int) -> Encoded: ...

    @abstractmethod
    def fingerprint(self) -> str: ...

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        return sizes_of(self, sample)

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images = torch.empty(len(indices), 3, *image_size, dtype=torch.uint8)
        unreadable: dict[int, UnreadableImage] = {}
        for row, index in enumerate(indices.tolist()):
            try:
                name = self.describe(index)
                set_current_image(name)
                images[row] = decode_row(self.encoded(index), name, row, crops, image_size)
            except UnreadableImage as failure:
                unreadable[row] = failure
        set_current_image("")
        return images, unreadable


def decode_row(encoded: Encoded, name: str, row: int, crops: Crops, image_size: tuple[int, int]) -> Tensor:
    """The crop that was drawn for one row of a batch: 3 H W uint8."""
    return decode(encoded, name, image_size, partial(crops.box, row, image_size), mirror=bool(crops.flip[row]))


def sizes_of(source: ImageSource, sample: int) -> list[tuple[int, int]]:
    """Height and width, from their headers, of evenly spaced images that can be read."""
    sizes = []
    for index in evenly_spaced(len(source), sample):
        try:
            sizes.append(read_size(source.encoded(index), source.describe(index)))
        except UnreadableImage:
            continue
    return sizes


def evenly_spaced(count: int, most: int) -> list[int]:
    spaced: list[int] = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return spaced
