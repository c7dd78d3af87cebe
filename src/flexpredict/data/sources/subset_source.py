"""Some images of a source, as a source of its own."""

from torch import Tensor

from flexpredict.data.augmentation import Crops
from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest, digest_of
from flexpredict.sizes import Size


class SubsetSource(ImageSource):
    """The images of `source` at `indices`, in that order. Classes keep their numbers."""

    def __init__(self, source: ImageSource, indices: Tensor) -> None:
        """indices: N int64."""
        labels = None if source.labels is None else source.labels[indices]
        super().__init__(name=source.name, classes=source.classes, labels=labels, problems=source.problems)
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def describe(self, index: int) -> str:
        return self.source.describe(int(self.indices[index]))

    def encoded(self, index: int) -> Encoded:
        return self.source.encoded(int(self.indices[index]))

    def fingerprint(self) -> str:
        return digest([self.source.fingerprint(), digest_of(self.indices.numpy())])

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        return self.source.read(self.indices[indices], crops, image_size)
