"""Looking at each image once, in worker processes: what it is, and whether all of it can be decoded."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from flexpredict.data.decoding import Encoded, UnreadableImage, image_facts, upright
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.streams import Record
from flexpredict.data.workers import Computed, WorkerResults, set_current_image

Advance = Callable[[int], None]  # told how many more images were looked at
Entry = Record | UnreadableImage

# What is remembered of an image: 28 bytes, whatever its name and its size. Unreadable ones have height 0.
ROW = np.dtype([("digest", np.uint64, 2), ("height", np.int32), ("width", np.int32), ("label", np.int32)])

_SHORTER_SIDE = 32  # Pixels enough to see whether there is colour; a JPEG is decoded at an eighth for them.
_COLOURLESS = 8  # Red, green and blue of a greyscale picture differ by so much at the most, after compression.
_AT_ONCE = 32  # images of a piece of work
_BYTES_AT_ONCE = 2**23  # and what they may weigh: records of a stream travel to the workers


@dataclass(eq=False)
class Findings:
    """What was seen of some images."""

    rows: NDArray[np.void] = field(default_factory=lambda: np.empty(0, ROW))  # one an image, in order
    broken: list[UnreadableImage] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    turned: int = 0
    animated: int = 0
    colourless: int = 0


def examine_source(source: ImageSource, indices: NDArray[np.int64], workers: int, advance: Advance) -> Findings:
    """Look at the images of these indices."""
    work = (indices[first : first + _AT_ONCE] for first in range(0, len(indices), _AT_ONCE))
    return _total(WorkerResults(Computed(partial(_examine_images, source)), work, workers), advance)


def examine_stream(entries: Iterable[Entry], workers: int, advance: Advance) -> Findings:
    """Look at these records as they come. They are read here, and decoded by the workers."""
    return _total(WorkerResults(Computed(examine), _parcels(entries), workers), advance)


def examine(entries: Iterable[Entry]) -> Findings:
    """Look at some images in this process."""
    found = Findings()
    rows = []
    for entry in entries:
        try:
            if isinstance(entry, UnreadableImage):
                raise entry
            rows.append(_look_at(entry, found))
        except UnreadableImage as failure:
            found.broken.append(failure)
            rows.append(((0, 0), 0, 0, -1))
    set_current_image("")
    found.rows = np.array(rows, ROW)
    return found


def _look_at(record: Record, found: Findings) -> tuple[tuple[int, ...], int, int, int]:
    set_current_image(record.name)
    facts = image_facts(record.encoded, record.name)
    content = _content(record)
    small = np.asarray(upright(content, record.name, _SHORTER_SIDE)).astype(np.int16)  # h w 3
    # Nothing is counted before the pixels are decoded: a broken image may have a faultless header.
    found.formats[facts.format] += 1
    found.modes[facts.mode] += 1
    found.bytes += content.nbytes if isinstance(content, np.ndarray) else len(content)
    found.animated += facts.frames > 1
    found.turned += facts.format == "JPEG" and isinstance(content, bytes) and _is_turned(content)
    found.colourless += bool(np.ptp(small, axis=-1).max() <= _COLOURLESS)
    return _digest(content), facts.height, facts.width, -1 if record.label is None else record.label


def _content(record: Record) -> bytes | NDArray[np.uint8]:
    encoded: Encoded = record.encoded
    if not isinstance(encoded, str):
        return encoded
    try:
        return Path(encoded).read_bytes()
    except OSError as error:
        raise UnreadableImage(record.name, error.strerror or str(error)) from error


def _digest(content: bytes | NDArray[np.uint8]) -> tuple[int, ...]:
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(content, np.ndarray):
        digest.update(str(content.shape).encode())
        content = np.ascontiguousarray(content).tobytes()
    digest.update(content)
    return tuple(np.frombuffer(digest.digest(), np.uint64).tolist())


def _is_turned(jpeg: bytes) -> bool:
    # EXIF stands among the first segments; most files have none, and are not opened once more for it.
    if b"Exif\0" not in jpeg[:4096]:
        return False
    try:
        with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
            return image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
    except Exception:  # Broken EXIF can raise anything, and is ignored by whoever decodes the image.
        return False


def _examine_images(source: ImageSource, indices: NDArray[np.int64]) -> Findings:
    return examine(_of_source(source, indices))


def _of_source(source: ImageSource, indices: NDArray[np.int64]) -> Iterator[Entry]:
    for index in indices.tolist():
        name = source.describe(index)
        set_current_image(name)
        try:
            yield Record(name, source.encoded(index))
        except UnreadableImage as failure:
            yield failure


def _parcels(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    parcel: list[Entry] = []
    weight = 0
    for entry in entries:
        parcel.append(entry)
        weight += entry.bytes_in_memory if isinstance(entry, Record) else 0
        if len(parcel) == _AT_ONCE or weight > _BYTES_AT_ONCE:
            yield parcel
            parcel, weight = [], 0
    if parcel:
        yield parcel


def _total(parts: Iterable[Findings], advance: Advance) -> Findings:
    total = Findings()
    rows = [total.rows]
    for part in parts:
        rows.append(part.rows)
        total.broken += part.broken
        total.formats += part.formats
        total.modes += part.modes
        total.bytes += part.bytes
        total.turned += part.turned
        total.animated += part.animated
        total.colourless += part.colourless
        advance(len(part.rows))
    total.rows = np.concatenate(rows)
    return total
