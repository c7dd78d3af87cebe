"""The interface of every source of images; sources of arrays, of records, and of parts of larger files."""

import hashlib
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.data.augmentation import Crops, crop_arrays
from flexpredict.data.decoding import Encoded, UnreadableImage, decode, read_size
from flexpredict.data.sources.listing import digest, digest_of, state_of
from flexpredict.data.workers import set_current_image
from flexpredict.sizes import Size

MOST_CLASSES = 1_000_000  # larger numbers are not taken for classes
_FILES_KEPT_OPEN = 128


@dataclass(frozen=True)
class Record:
    """One image as it is stored: an image of a stream, or a file."""

    name: str
    encoded: Encoded = field(repr=False)
    label: int | None = None

    @property
    def bytes_in_memory(self) -> int:
        return self.encoded.nbytes if isinstance(self.encoded, np.ndarray) else len(self.encoded)

    def content(self) -> bytes | NDArray[np.uint8]:
        """The bytes of the file, or the pixels."""
        if not isinstance(self.encoded, str):
            return self.encoded
        try:
            return Path(self.encoded).read_bytes()
        except OSError as error:
            raise UnreadableImage(self.name, error.strerror or str(error)) from error


def content_digest(content: bytes | NDArray[np.uint8]) -> bytes:
    """16 bytes that are the same for the same file, or the same pixels."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(content, np.ndarray):
        digest.update(str(content.shape).encode())
        content = content.tobytes()
    digest.update(content)
    return digest.digest()


@dataclass(eq=False, kw_only=True)
class ImageSource(ABC):
    """Images in a fixed order, any of which can be read at any time and in any process."""

    name: str
    classes: tuple[str, ...] | None = None
    labels: Tensor | None = field(default=None, repr=False)  # N int64: index into `classes`, -1 if there is none
    problems: list[UnreadableImage] = field(default_factory=list, repr=False)
    """Broken files and folders found while listing. They do not count in the length."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def describe(self, index: int) -> str:
        """A name by which a person can find this image."""

    @abstractmethod
    def encoded(self, index: int) -> Encoded:
        """The image as it is stored: the path or the content of a file, or pixels. Raises UnreadableImage."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Differs if images were added, removed or changed."""

    def record(self, index: int) -> "Record | UnreadableImage":
        """An image as it is stored, with its name and label; or why it cannot be read."""
        name = self.describe(index)
        set_current_image(name)
        label = -1 if self.labels is None else int(self.labels[index])
        try:
            return Record(name, self.encoded(index), None if label < 0 else label)
        except UnreadableImage as failure:
            return failure

    def sizes(self, sample: int = 64) -> list[Size]:
        """Height and width of up to `sample` evenly spaced images that can be read, from their headers."""
        sizes = []
        for index in evenly_spaced(len(self), sample):
            try:
                sizes.append(read_size(self.encoded(index), self.describe(index)))
            except UnreadableImage:
                continue
        return sizes

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        """One crop of each image: B 3 H W uint8, and the rows that could not be read (their pixels mean nothing)."""
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


class ArraySource(ImageSource):
    """Equally large images in memory, as a tensor, which worker processes share."""

    def __init__(
        self, name: str, images: Tensor, classes: tuple[str, ...] | None = None, labels: Tensor | None = None
    ) -> None:
        """images: N H W 3 uint8."""
        super().__init__(name=name, classes=classes, labels=labels)
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def describe(self, index: int) -> str:
        return f"{self.name}, image {index}"

    def encoded(self, index: int) -> Encoded:
        pixels: Encoded = self.images[index].numpy()
        return pixels

    def fingerprint(self) -> str:
        return digest_of(self.images.numpy())

    def sizes(self, sample: int = 64) -> list[Size]:
        _, height, width, _ = self.images.shape
        return [(height, width)] * min(sample, len(self))

    def read(self, indices: Tensor, crops: Crops, image_size: Size) -> tuple[Tensor, dict[int, UnreadableImage]]:
        return crop_arrays(self.images.index_select(0, indices), crops, image_size), {}


@dataclass(eq=False, kw_only=True)
class RecordSource(ImageSource):
    """A few images: records of a stream, or single image files."""

    records: list[Record] = field(repr=False)

    def __len__(self) -> int:
        return len(self.records)

    def describe(self, index: int) -> str:
        return self.records[index].name

    def encoded(self, index: int) -> Encoded:
        return self.records[index].encoded

    def fingerprint(self) -> str:
        return digest([record.name for record in self.records])


@dataclass(eq=False, kw_only=True)
class ByteRanges(ImageSource):
    """Members of shards, rows of an unpacked table: image i is `lengths[i]` bytes from `starts[i]` in its file."""

    files: list[str] = field(repr=False)
    file_of: Tensor = field(repr=False)  # N int32: index into `files`
    starts: Tensor = field(repr=False)  # N int64
    lengths: Tensor = field(repr=False)  # N int64

    def __len__(self) -> int:
        return len(self.starts)

    def encoded(self, index: int) -> Encoded:
        start, length = int(self.starts[index]), int(self.lengths[index])
        try:
            # Unlike seek and read, pread does not use the position in the file, which processes share after a fork.
            content = os.pread(_opened(self.files[int(self.file_of[index])]).descriptor, length, start)
        except OSError as error:
            raise UnreadableImage(self.describe(index), error.strerror or str(error)) from error
        if len(content) < length:
            raise UnreadableImage(self.describe(index), f"cut short: {len(content)} of {length} bytes are there")
        return content

    def fingerprint(self) -> str:
        places = [digest_of(tensor.numpy()) for tensor in (self.file_of, self.starts, self.lengths)]
        return digest([*places, *(f"{file} {state_of(file)}" for file in self.files)])


def close_files() -> None:
    """Close all files, as they may have been written again since they were opened."""
    _opened.cache_clear()


class _Opened:
    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


@lru_cache(maxsize=_FILES_KEPT_OPEN)
def _opened(path: str) -> _Opened:
    return _Opened(path)


def class_name(source: ImageSource, index: int) -> str:
    """The name of the class of an image; empty if it has none."""
    label = -1 if source.labels is None else int(source.labels[index])
    if label < 0:
        return ""
    return source.classes[label] if source.classes else str(label)


def decode_row(encoded: Encoded, name: str, row: int, crops: Crops, image_size: Size) -> Tensor:
    """The crop that was drawn for one row of a batch: 3 H W uint8."""
    return decode(encoded, name, image_size, partial(crops.box, row, image_size), mirror=bool(crops.flip[row]))


def evenly_spaced(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, with the first and the last."""
    spaced: list[int] = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return spaced
