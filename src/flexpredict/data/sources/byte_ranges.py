"""Images that are parts of larger files: members of tar shards, rows of an unpacked table."""

import os
from dataclasses import dataclass, field
from functools import lru_cache

from torch import Tensor

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest, digest_of, state_of

_FILES_KEPT_OPEN = 128


@dataclass(eq=False, kw_only=True)
class ByteRanges(ImageSource):
    """Image i is `lengths[i]` bytes from `starts[i]` in `files[file_of[i]]`."""

    files: list[str] = field(repr=False)
    file_of: Tensor = field(repr=False)  # N int32
    starts: Tensor = field(repr=False)  # N int64
    lengths: Tensor = field(repr=False)  # N int64

    def __len__(self) -> int:
        return len(self.starts)

    def describe(self, index: int) -> str:
        return f"{self.files[int(self.file_of[index])]}, image {index}"

    def encoded(self, index: int) -> Encoded:
        return self.content(index)

    def content(self, index: int) -> bytes:
        start, length = int(self.starts[index]), int(self.lengths[index])
        try:
            # Unlike seek and read, this needs no position in the file, which processes share after a fork.
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
