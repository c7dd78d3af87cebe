"""Examines each image once, in worker processes: what it is, and whether all of it can be decoded."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from flexpredict.data.decoding import UnreadableImage, image_facts, upright
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.data.sources.streams import Entry, in_chunks
from flexpredict.data.workers import Computed, WorkerResults, set_current_image

# What is kept of an image: 28 bytes, whatever its name and its size. Unreadable ones have height 0.
ROW = np.dtype([("digest", np.uint64, 2), ("height", np.int32), ("width", np.int32), ("label", np.int32)])

_SHORTER_SIDE = 32  # Enough pixels to see whether there is color; a JPEG is decoded at an eighth for them.
_GRAYSCALE = 8  # The most by which red, green and blue of a grayscale picture differ after compression.
_IMAGES_AT_ONCE = 32  # in a piece of work
_BYTES_AT_ONCE = 2**23  # and their size, as records of a stream are sent to the workers


@dataclass(eq=False)
class Findings:
    """What was found in some images."""

    rows: NDArray[np.void] = field(default_factory=lambda: np.empty(0, ROW))  # one for each image, in order
    broken: list[UnreadableImage] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)  # bytes; rotated, animated and grayscale images

    @property
    def readable(self) -> NDArray[np.bool_]:
        return np.asarray(self.rows["height"] > 0)

    def duplicates(self) -> list[NDArray[np.int64]]:
        """Groups of two or more images with the same content: their rows, ascending."""
        readable = np.flatnonzero(self.readable)
        digests = self.rows["digest"][readable]
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        ordered, order = digests[order], readable[order]
        starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(order)])
        groups = np.split(order, starts[1:]) if len(order) else []
        return sorted((group for group in groups if len(group) > 1), key=lambda group: int(group[0]))


def examine_source(source: ImageSource, indices: NDArray[np.int64], workers: int) -> Iterator[Findings]:
    """Examine the images at these indices."""
    work = (indices[first : first + _IMAGES_AT_ONCE] for first in range(0, len(indices), _IMAGES_AT_ONCE))
    return WorkerResults(Computed(partial(_examine_indices, source)), work, workers)


def examine_stream(entries: Iterable[Entry], workers: int) -> Iterator[Findings]:
    """Examine records as they come. They are read by this process, and decoded by the workers."""
    return WorkerResults(Computed(_examine), in_chunks(entries, _IMAGES_AT_ONCE, _BYTES_AT_ONCE), workers)


def add_up(parts: list[Findings]) -> Findings:
    total = Findings(np.concatenate([np.empty(0, ROW), *(part.rows for part in parts)]))
    for part in parts:
        total.broken += part.broken
        total.formats += part.formats
        total.modes += part.modes
        total.counts += part.counts
    return total


def _examine_indices(source: ImageSource, indices: NDArray[np.int64]) -> Findings:
    return _examine((index, source.record(index)) for index in indices.tolist())


def _examine(entries: Iterable[Entry]) -> Findings:
    found = Findings()
    rows = []
    for _, entry in entries:
        try:
            if isinstance(entry, UnreadableImage):
                raise entry
            rows.append(_examine_image(entry, found))
        except UnreadableImage as failure:
            found.broken.append(failure)
            rows.append(((0, 0), 0, 0, -1))
    set_current_image("")
    found.rows = np.array(rows, ROW)
    return found


def _examine_image(record: Record, found: Findings) -> tuple[tuple[int, ...], int, int, int]:
    set_current_image(record.name)
    facts = image_facts(record.encoded, record.name)
    content = _content(record)
    small = np.asarray(upright(content, record.name, _SHORTER_SIDE)).astype(np.int16)  # h w 3
    # Nothing is counted before the pixels are decoded: a broken image may have a faultless header.
    found.formats[facts.format] += 1
    found.modes[facts.mode] += 1
    found.counts["bytes"] += content.nbytes if isinstance(content, np.ndarray) else len(content)
    found.counts["animated"] += facts.frames > 1
    found.counts["rotated"] += facts.format == "JPEG" and isinstance(content, bytes) and _is_rotated(content)
    found.counts["grayscale"] += bool(np.ptp(small, axis=-1).max() <= _GRAYSCALE)
    return _digest(content), facts.height, facts.width, -1 if record.label is None else record.label


def _content(record: Record) -> bytes | NDArray[np.uint8]:
    if not isinstance(record.encoded, str):
        return record.encoded
    try:
        return Path(record.encoded).read_bytes()
    except OSError as error:
        raise UnreadableImage(record.name, error.strerror or str(error)) from error


def _digest(content: bytes | NDArray[np.uint8]) -> tuple[int, ...]:
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(content, np.ndarray):
        digest.update(str(content.shape).encode())
        content = np.ascontiguousarray(content).tobytes()
    digest.update(content)
    return tuple(np.frombuffer(digest.digest(), np.uint64).tolist())


def _is_rotated(jpeg: bytes) -> bool:
    # EXIF is among the first segments. Most files have none, and are not opened again for it.
    if b"Exif\0" not in jpeg[:4096]:
        return False
    try:
        with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
            return image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
    except Exception:  # Broken EXIF can raise anything, and is ignored when the image is decoded.
        return False
