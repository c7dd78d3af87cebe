"""The images of a source, shifted by some pixels."""

import torch
from torch import Tensor

from flexpredict.data.augmentation import Crops
from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest
from flexpredict.sizes import Size


class ShiftedSource(ImageSource):
    """What is read of `source`, moved `down` and to the `right` by so many pixels of the size it is read at."""

    def __init__(self, source: ImageSource, down: int, right: int) -> None:
        name = f"{source.name}, shifted by {down}, {right} pixels"
        super().__init__(name=name, classes=source.classes, labels=source.labels, problems=source.problems)
        self.source, self.down, self.right = source, down, right

    def __len__(self) -> int:
        return len(self.source)

    def describe(self, index: int) -> str:
        return self.source.describe(index)

    def encoded(self, index: int) -> Encoded:
        """As it is stored, which is not shifted."""
        return self.source.encoded(index)

    def fingerprint(self) -> str:
        return digest([self.source.fingerprint(), f"shifted {self.down} {self.right}"])

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images, unreadable = self.source.read(indices, crops, image_size)
        return shifted(images, self.down, self.right), unreadable


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """images: ... H W -> the same, moved by less than their height and width; what comes in is their reflection."""
    for dim, by in ((-2, down), (-1, right)):
        if by:
            images = images.index_select(dim, (torch.arange(images.shape[dim]) - by).abs())
    return images
