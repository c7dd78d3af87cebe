"""Sources to pack, some of which kill or interrupt, and what shards hold afterwards."""

import os
import signal
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pictures import encoded as content
from pictures import smooth_picture as picture

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.data.sources.manifest import Manifest, damaged_shards
from flexpredict.prepare import pack as packing


def pack(*arguments: Any, **options: Any) -> Manifest:
    return packing.pack(*arguments, **options).manifest


def damaged(folder: Path) -> list[str]:
    return damaged_shards(folder)[1]


def members(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                file = shard.extractfile(member)
                assert file is not None and member.name not in found
                found[member.name] = file.read()
    return found


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.tar")}


@dataclass(eq=False)
class Listed(ImageSource):
    """A source made of bytes in memory, whose reading can be made to kill a process."""

    images: list[bytes] = field(repr=False)
    name: str = field(default="listed", kw_only=True)
    deadly: int = -1
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.images)

    def describe(self, index: int) -> str:
        return f"{self.name}/{index}.png"

    def encoded(self, index: int) -> Encoded:
        self.asked.append(index)
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.images[index]

    def fingerprint(self) -> str:
        raise NotImplementedError


@dataclass
class Streamed:
    """The same images one after the other, in two pieces; the first of the second piece is broken."""

    images: list[bytes] = field(repr=False)
    name: str = "streamed"
    classes: tuple[str, ...] | None = ("ant", "bee")
    length: int | None = None
    pieces: int = 2
    stop_after: int = 10**9

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        half = len(self.images) // 2
        for index in range(half) if piece == 0 else range(half, len(self.images)):
            if index == self.stop_after:
                raise KeyboardInterrupt
            if index == half:
                yield UnreadableImage(f"{self.name}/{index}", "the shard is damaged here")
            else:
                yield Record(f"{self.name}/{index}", self.images[index], index % 2)


def small_pictures(count: int) -> list[bytes]:
    return [content(picture(20, 30, seed)) for seed in range(count)]
