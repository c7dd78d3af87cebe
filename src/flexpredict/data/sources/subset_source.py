"""Some images of a source, as a source of its own."""

from dataclasses import dataclass, field

from torch import Tensor

from flexpredict.data.augmentation import Crops
from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.encoded_images import sizes_of
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest, digest_of


@dataclass(eq=False)
class SubsetSource:
    """The images of `source` at `indices`, in that order. Classes keep their numbers."""

    source: ImageSource
    indices: Tensor = field(repr=False)  # int64
    name: str = field(init=False)
    classes: tuple[str, ...] | None = field(init=False, repr=False)
    labels: Tensor | None = field(init=False, repr=False)
    problems: list[UnreadableImage] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.name, self.classes, self.problems = self.source.name, self.source.classes, self.source.problems
        self.labels = None if self.source.labels is None else self.source.labels[self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def describe(self, index: int) -> str:
        return self.source.describe(int(self.indices[index]))

    def encoded(self, index: int) -> Encoded:
        return self.source.encoded(int(self.indices[index]))

    def fingerprint(self) -> str:
        return digest([self.source.fingerprint(), digest_of(self.indices.numpy())])

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        return sizes_of(self, sample)

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        return self.source.read(self.indices[indices], crops, image_size)
