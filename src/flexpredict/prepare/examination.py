"""Examines each image once, in worker processes: what it is, and whether all of it can be decoded.

After that, sources and streams are alike.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.data.decoding import UnreadableImage, image_facts, upright
from flexpredict.data.sources.image_source import ImageSource, Record, RecordSource, evenly_spaced
from flexpredict.data.sources.streams import Entry, ImageStream, all_entries, in_chunks, is_stream
from flexpredict.data.workers import Computed, WorkerResults, set_current_image
from flexpredict.errors import UserError
from flexpredict.progress import Counting

# What is kept of an image: 28 bytes, whatever its name and its size. Unreadable ones have height 0.
ROW = np.dtype([("digest", np.uint64, 2), ("height", np.int32), ("width", np.int32), ("label", np.int32)])

_SHORTER_SIDE = 32  # Enough pixels to see whether there is color; a JPEG is decoded at an eighth for them.
_GRAYSCALE = 8  # The most by which red, green and blue of a grayscale picture differ after compression.
_IMAGES_AT_ONCE = 32  # in a piece of work
_BYTES_AT_ONCE = 2**23  # and their size, as records of a stream are sent to the workers
_MOST_KEPT = 48  # images of a stream


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
        starts = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
        groups = [group for group in np.split(order, starts) if len(group) > 1]
        return sorted(groups, key=lambda group: int(group[0]))


@dataclass(frozen=True, eq=False)
class Examined:
    """A source or a stream after its images were examined."""

    name: str
    classes: tuple[str, ...] | None
    images: int | None  # in total, where that is known
    findings: Findings
    problems: list[UnreadableImage]  # what could not be listed
    labels: NDArray[np.integer] | None  # of all images, or of those that were examined; -1 where there is none
    pictures: ImageSource  # some of which can be shown
    shown: NDArray[np.int64]  # indices of pictures that can be read
    duplicates: list[NDArray[np.int64]]  # rows of the findings, a group each
    names: dict[int, str]  # of the duplicates


def examine_images(images: ImageSource | ImageStream, sample: int | None, workers: int, console: Console) -> Examined:
    """Examine all images; or `sample` of them, evenly spaced, or the first of a stream."""
    examined = (
        _examine_stream(images, sample, workers, console)
        if is_stream(images)
        else _examine_source(images, sample, workers, console)
    )
    if not len(examined.findings.rows):
        raise UserError(f"There are no images in {images.name}.")
    return examined


def _examine_source(source: ImageSource, sample: int | None, workers: int, console: Console) -> Examined:
    indices = np.arange(len(source)) if sample is None else np.array(evenly_spaced(len(source), sample))
    work = (indices[first : first + _IMAGES_AT_ONCE] for first in range(0, len(indices), _IMAGES_AT_ONCE))
    parts = WorkerResults(Computed(partial(_examine_indices, source)), work, workers)
    findings = _added_up(parts, len(indices), console)
    duplicates = findings.duplicates()
    return Examined(
        name=source.name,
        classes=source.classes,
        images=len(source),
        findings=findings,
        problems=source.problems,
        labels=None if source.labels is None else source.labels.numpy(),
        pictures=source,
        shown=indices[findings.readable],
        duplicates=duplicates,
        names={row: source.describe(int(indices[row])) for group in duplicates for row in group.tolist()},
    )


def _examine_stream(stream: ImageStream, sample: int | None, workers: int, console: Console) -> Examined:
    expected = min((count for count in (sample, stream.length) if count is not None), default=None)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as names_file:
        # This process reads the records, and the workers decode them.
        passing = PassingStream(stream, sample, names_file)
        parts = WorkerResults(Computed(_examine), in_chunks(passing, _IMAGES_AT_ONCE, _BYTES_AT_ONCE), workers)
        findings = _added_up(parts, expected, console)
        duplicates = findings.duplicates()
        names = passing.names(row for group in duplicates for row in group.tolist())
    # The length of a stream is known once it was read to its end.
    ended = sample is None or len(findings.rows) < sample
    pictures = passing.kept(findings.readable)
    return Examined(
        name=stream.name,
        classes=stream.classes,
        images=len(findings.rows) if ended else stream.length,
        findings=findings,
        problems=[],
        labels=findings.rows["label"],
        pictures=pictures,
        shown=np.arange(len(pictures)),
        duplicates=duplicates,
        names=names,
    )


def _added_up(parts: Iterator[Findings], expected: int | None, console: Console) -> Findings:
    total = Findings()
    rows = [total.rows]
    with Counting(console, "examining", "images", expected) as counting:
        for part in parts:
            rows.append(part.rows)
            total.broken += part.broken
            total.formats += part.formats
            total.modes += part.modes
            total.counts += part.counts
            counting.add(len(part.rows))
    total.rows = np.concatenate(rows)
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
    content = record.content()
    small = np.asarray(upright(content, record.name, _SHORTER_SIDE)).astype(np.int16)  # h w 3
    # Nothing is counted before the pixels are decoded: a broken image may have a faultless header.
    found.formats[facts.format] += 1
    found.modes[facts.mode] += 1
    found.counts["bytes"] += content.nbytes if isinstance(content, np.ndarray) else len(content)
    found.counts["animated"] += facts.frames > 1
    found.counts["rotated"] += facts.format == "JPEG" and facts.orientation in range(2, 9)
    found.counts["grayscale"] += bool(np.ptp(small, axis=-1).max() <= _GRAYSCALE)
    return _digest(content), facts.height, facts.width, -1 if record.label is None else record.label


def _digest(content: bytes | NDArray[np.uint8]) -> tuple[int, ...]:
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(content, np.ndarray):
        digest.update(str(content.shape).encode())
        content = content.tobytes()
    digest.update(content)
    return tuple(np.frombuffer(digest.digest(), np.uint64).tolist())


@dataclass(eq=False)
class PassingStream:
    """The first `most` images of a stream, to be iterated over once."""

    stream: ImageStream
    most: int | None
    names_file: IO[str]  # A million names would fill memory; those of duplicates are looked up at the end.
    _kept: dict[int, Record] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[Entry]:
        every = 1
        for row, found in islice(all_entries(self.stream), self.most):
            self.names_file.write(json.dumps(found.name) + "\n")
            if row % every == 0 and isinstance(found, Record):
                self._kept[row] = found
                # The length of the stream is known only at its end: so keep fewer and fewer, always evenly spaced.
                if len(self._kept) > _MOST_KEPT:
                    every *= 2
                    self._kept = {row: record for row, record in self._kept.items() if row % every == 0}
            yield row, found

    def kept(self, readable: NDArray[np.bool_]) -> RecordSource:
        """The images that were kept. readable: which of all images could be read."""
        records = [record for row, record in self._kept.items() if readable[row]]
        labels = torch.tensor([-1 if record.label is None else record.label for record in records])
        return RecordSource(name=self.stream.name, classes=self.stream.classes, labels=labels, records=records)

    def names(self, rows: Iterable[int]) -> dict[int, str]:
        """The names of the images of these rows."""
        wanted = set(rows)
        self.names_file.seek(0)
        return {row: json.loads(line) for row, line in enumerate(self.names_file) if row in wanted}
