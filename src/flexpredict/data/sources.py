"""Where images come from: a folder of files, or the built-in scenes, behind one `open_images(uri)`."""

import os
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.data.augmentation import PRESETS, Crops, crop_arrays, draw_crops
from flexpredict.data.decoding import UnreadableImage, decode, read_size
from flexpredict.errors import UserError, did_you_mean

_PHOTOS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff", ".jp2")
IMAGE_SUFFIXES = frozenset((*_PHOTOS, ".ppm", ".pgm", ".pbm", ".pnm"))
_TRIED_ON_OPENING = 32
_SCENES = 10_000


class ImageSource(Protocol):
    """Images in a fixed order, any of which can be read at any time, and in any process."""

    name: str
    classes: tuple[str, ...] | None
    labels: Tensor | None  # int64, one an image; an index into `classes`

    def __len__(self) -> int: ...

    def describe(self, index: int) -> str:
        """What a person would look for to find this image."""

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        """Height and width of up to `sample` evenly spaced images, without decoding them."""

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        """One crop of each image: B 3 H W uint8, and the rows that could not be read (their pixels mean nothing)."""


def open_images(uri: str) -> ImageSource:
    """`uri` is a folder, or `scenes`, or more precisely `scenes:5000,size=64,seed=0,split=test`.

    A folder may be flat or nested. If all its images are in folders directly below it, those are the classes.
    A folder that is itself called scenes is `./scenes`.
    """
    kind, colon, rest = uri.partition(":")
    if kind == "scenes":
        return _open_scenes(uri, rest)
    path = Path(uri).expanduser()
    if uri and path.is_dir():
        return _open_folder(path)
    if path.is_file():
        raise UserError(f"{uri} is a file. Give the folder that holds the images.")
    if colon and "/" not in kind and len(kind) > 1:
        raise UserError(
            f"'{kind}:' in {uri} is not a kind of data set.{did_you_mean(kind, ['scenes'])}"
            " Give a folder of images, or scenes:5000 for 5,000 built-in scenes."
        )
    raise UserError(
        f"There is no folder '{uri}' (looked for in {Path.cwd()}).{_beside(path)}"
        " Give a folder of images, or scenes to try things out without any."
    )


@dataclass(eq=False)
class FolderSource:
    """Image files below a folder. Their names are one string of bytes, which worker processes share."""

    name: str
    names: bytes = field(repr=False)
    ends: NDArray[np.int64] = field(repr=False)  # N + 1; file i is names[ends[i]:ends[i + 1]]
    classes: tuple[str, ...] | None = None
    labels: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def describe(self, index: int) -> str:
        return f"{self.name}/{os.fsdecode(self.names[self.ends[index] : self.ends[index + 1]])}"

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        sizes = []
        for index in _evenly_spaced(len(self), sample):
            try:
                sizes.append(read_size(self.describe(index)))
            except UnreadableImage:
                continue
        return sizes

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        images = torch.empty(len(indices), 3, *image_size, dtype=torch.uint8)
        unreadable: dict[int, UnreadableImage] = {}
        for row, index in enumerate(indices.tolist()):
            choose_box = partial(crops.box, row, image_size)
            try:
                images[row] = decode(self.describe(index), image_size, choose_box, mirror=bool(crops.flip[row]))
            except UnreadableImage as failure:
                unreadable[row] = failure
        return images, unreadable


@dataclass(eq=False)
class ArraySource:
    """Equally large images in memory. They are a tensor, which worker processes share."""

    name: str
    images: Tensor = field(repr=False)  # N H W 3 uint8
    classes: tuple[str, ...] | None = None
    labels: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.images)

    def describe(self, index: int) -> str:
        return f"{self.name}, image {index}"

    def sizes(self, sample: int = 64) -> list[tuple[int, int]]:
        _, height, width, _ = self.images.shape
        return [(height, width)] * min(sample, len(self))

    def read(
        self, indices: Tensor, crops: Crops, image_size: tuple[int, int]
    ) -> tuple[Tensor, dict[int, UnreadableImage]]:
        return crop_arrays(self.images.index_select(0, indices), crops, image_size), {}


def _open_folder(root: Path) -> FolderSource:
    names, ends = bytearray(), array("q", [0])
    holders: list[str] = []
    holder_of = array("q")
    others: Counter[str] = Counter()
    for place, files in _walk(root):
        images = [file for file in files if _suffix(file) in IMAGE_SUFFIXES]
        others.update(_suffix(file) for file in files if _suffix(file) not in IMAGE_SUFFIXES)
        for image in images:
            names += os.fsencode(place + image)
            ends.append(len(names))
        if images:
            holder_of.extend([len(holders)] * len(images))
            holders.append(place)
    if not holders:
        found = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(3))
        raise UserError(
            f"There are no images in {root}"
            + (f", but other files ({found}). " if others else " or below. ")
            + f"Images are files that end in {', '.join(sorted(IMAGE_SUFFIXES))}."
        )
    source = FolderSource(str(root), bytes(names), np.array(ends, np.int64))
    if len(holders) > 1 and all(place.count("/") == 1 for place in holders):
        source.classes = tuple(place.removesuffix("/") for place in holders)
        source.labels = torch.from_numpy(np.array(holder_of, np.int64))
    _require_readable(source)
    return source


def _walk(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder (relative, with a slash at the end) and the files in it, in an order that is always the same."""
    waiting, seen = [""], set()
    while waiting:
        place = waiting.pop()
        try:
            status = (root / place).stat()
            # A link may lead back up, or to the same folder as another: each folder is listed once.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(root / place) as entries:
                visible = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            raise UserError(f"Cannot list {root / place}: {error.strerror}. Check its permissions.") from error
        waiting += [f"{place}{entry.name}/" for entry in reversed(visible) if entry.is_dir()]
        yield place, [entry.name for entry in visible if entry.is_file()]


def _suffix(file: str) -> str:
    return "." + file.rpartition(".")[2].lower()


def _require_readable(source: ImageSource) -> None:
    """Say at once, not a thousand failures later, that nothing here can be read."""
    failures: list[UnreadableImage] = []
    for tried in _evenly_spaced(len(source), _TRIED_ON_OPENING):
        index = torch.tensor([tried])
        _, unreadable = source.read(index, draw_crops(PRESETS["none"], index), (16, 16))
        if not unreadable:
            return
        failures += unreadable.values()
    raise UserError(
        f"Of {len(source)} images in {source.name}, {len(failures)} were tried and none could be read; for example"
        f" {failures[0]}. Check that the files are complete and are images."
    )


def _evenly_spaced(count: int, most: int) -> list[int]:
    spaced: list[int] = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return spaced


def _beside(path: Path) -> str:
    try:
        return did_you_mean(path.name, [entry.name for entry in os.scandir(path.parent) if entry.is_dir()])
    except OSError:
        return ""


def _open_scenes(uri: str, options: str) -> ArraySource:
    from flexpredict.data.scenes import CLASSES, draw_scenes

    numbers = {"count": _SCENES, "size": 64, "seed": 0}
    split = "train"
    for position, option in enumerate(filter(None, options.split(","))):
        key, equals, value = option.partition("=")
        if not equals and position == 0:
            key, value = "count", option
        if key == "split":
            split = value
        elif key not in numbers:
            known = [*numbers, "split"]
            raise UserError(
                f"'{option}' in {uri} is not an option of the scenes.{did_you_mean(key, known)}"
                f" Write it like scenes:5000,size=64,seed=0,split=test."
            )
        elif not value.isdecimal() or (key != "seed" and int(value) == 0):
            raise UserError(f"{key} in {uri} is '{value}'; it must be a whole number, like {numbers[key]}.")
        else:
            numbers[key] = int(value)
    scenes = draw_scenes(np.arange(numbers["count"]), size=numbers["size"], seed=numbers["seed"], split=split)
    return ArraySource(uri, torch.from_numpy(scenes.images), CLASSES, torch.from_numpy(scenes.classes))
