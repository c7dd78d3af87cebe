"""Examines each image once, in worker processes: its facts, and whether all of it can be decoded.

The result is of the same kind for sources and streams.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.data.decoding import UnreadableImage, image_facts, upright
from flexpredict.data.passes import one_pass
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.image_source import ImageSource, Record, RecordSource, content_digest, evenly_spaced
from flexpredict.data.sources.streams import ImageStream, all_entries, is_stream
from flexpredict.errors import UserError
from flexpredict.progress import Counting

# The record of an image: 28 bytes, whatever its name and its size. Unreadable ones have height 0.
_ROW = np.dtype([("digest", np.uint64, 2), ("height", np.int32), ("width", np.int32), ("label", np.int32)])
_UNREADABLE = ((0, 0), 0, 0, -1)

_SHORTER_SIDE = 32  # Enough pixels to see whether there is color; a JPEG is decoded at an eighth for them.
_GRAYSCALE = 8  # The most by which red, green and blue of a grayscale picture differ after compression.
_IMAGES_AT_ONCE = 32
_MOST_KEPT = 48  # images of a stream


class ImageReport(NamedTuple):
    """Facts about one image."""

    digest: tuple[int, ...]
    height: int
    width: int
    label: int  # -1 if it has none
    format: str
    mode: str
    counts: dict[str, int]  # bytes; 1 if it is rotated, animated, grayscale


@dataclass(eq=False)
class Findings:
    """Facts about several images."""

    rows: NDArray[np.void] = field(default_factory=lambda: np.empty(0, _ROW))  # one for each image, in order
    broken: list[UnreadableImage] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)  # sums of the counts in the reports

    @property
    def readable(self) -> NDArray[np.bool_]:
        return np.asarray(self.rows["height"] > 0)

    def duplicates(self) -> list[list[int]]:
        """Groups of two or more images with the same content: their rows, ascending."""
        readable = np.flatnonzero(self.readable)
        digests = self.rows["digest"][readable]
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        ordered, order = digests[order], readable[order]
        starts = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
        return sorted(group.tolist() for group in np.split(order, starts) if len(group) > 1)


@dataclass(frozen=True, eq=False)
class Examined:
    """A source or a stream after its images were examined."""

    images: ImageSource | ImageStream
    count: int | None  # of all images, if known
    findings: Findings
    problems: list[UnreadableImage]  # files and folders that could not be listed
    labels: NDArray[np.integer] | None  # of all images, or of those that were examined; -1 if there is none
    pictures: ImageSource  # the images to choose pictures to show from
    shown: NDArray[np.int64]  # indices of pictures that can be read
    duplicates: list[list[str]]  # names of images with the same content


def examine_images(images: ImageSource | ImageStream, sample: int | None, workers: int, console: Console) -> Examined:
    """Examine all images; or `sample` of them, evenly spaced, or the first of a stream."""
    if is_stream(images):
        examined = _examine_stream(images, sample, workers, console)
    else:
        examined = _examine_source(images, sample, workers, console)
    if not len(examined.findings.rows):
        raise UserError(f"There are no images in {images.name}.")
    return examined


def _examine_source(source: ImageSource, sample: int | None, workers: int, console: Console) -> Examined:
    indices = np.arange(len(source))
    if sample is not None:
        indices = indices[evenly_spaced(len(source), sample)]
    some = SubsetSource(source, torch.from_numpy(indices))
    findings = _findings(some, len(some), workers, console)
    return Examined(
        source,
        len(source),
        findings,
        source.problems,
        labels=None if source.labels is None else source.labels.numpy(),
        pictures=source,
        shown=indices[findings.readable],
        duplicates=[[some.describe(row) for row in group] for group in findings.duplicates()],
    )


def _examine_stream(stream: ImageStream, sample: int | None, workers: int, console: Console) -> Examined:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as names_file:
        passing = PassingStream(stream, sample, names_file)
        findings = _findings(passing, passing.length, workers, console)
        groups = findings.duplicates()
        names = passing.names(row for group in groups for row in group)
    # The length of a stream is known once it has been read to its end.
    ended = sample is None or len(findings.rows) < sample
    pictures = passing.kept(findings.readable)
    return Examined(
        stream,
        len(findings.rows) if ended else stream.length,
        findings,
        problems=[],
        labels=findings.rows["label"],
        pictures=pictures,
        shown=np.arange(len(pictures)),
        duplicates=[[names[row] for row in group] for group in groups],
    )


def _findings(images: ImageSource | ImageStream, expected: int | None, workers: int, console: Console) -> Findings:
    total = Findings()
    rows = [total.rows]
    with Counting(console, "examining", "images", expected) as counting:
        for found in one_pass(images, _examine_image, workers, at_once=_IMAGES_AT_ONCE):
            reports = [report for _, report in found]
            rows.append(np.array([_UNREADABLE if isinstance(r, UnreadableImage) else r[:4] for r in reports], _ROW))
            for report in reports:
                if isinstance(report, UnreadableImage):
                    total.broken.append(report)
                    continue
                total.formats[report.format] += 1
                total.modes[report.mode] += 1
                total.counts.update(report.counts)
            counting.add(len(found))
    total.rows = np.concatenate(rows)
    return total


def _examine_image(index: int, record: Record) -> ImageReport:
    facts = image_facts(record.encoded, record.name)
    content = record.content()
    small = np.asarray(upright(content, record.name, _SHORTER_SIDE)).astype(np.int16)  # h w 3
    counts = {
        "bytes": content.nbytes if isinstance(content, np.ndarray) else len(content),
        "animated": int(facts.frames > 1),
        "rotated": int(facts.format == "JPEG" and facts.orientation in range(2, 9)),
        "grayscale": int(np.ptp(small, axis=-1).max() <= _GRAYSCALE),
    }
    label = -1 if record.label is None else record.label
    digest = tuple(np.frombuffer(content_digest(content), np.uint64).tolist())
    return ImageReport(digest, facts.height, facts.width, label, facts.format, facts.mode, counts)


class PassingStream(ImageStream):
    """The first `most` images of a stream, to be read once. Remembers all names, and some of the images."""

    pieces = 1

    def __init__(self, stream: ImageStream, most: int | None, names_file: IO[str]) -> None:
        """names_file: a million names would fill memory; those of duplicates are looked up at the end."""
        self.name, self.classes = stream.name, stream.classes
        self.length = min((count for count in (most, stream.length) if count is not None), default=None)
        self._stream, self._most, self._names_file = stream, most, names_file
        self._kept: dict[int, Record] = {}

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        every = 1
        for row, found in islice(all_entries(self._stream), self._most):
            self._names_file.write(json.dumps(found.name) + "\n")
            if row % every == 0 and isinstance(found, Record):
                self._kept[row] = found
                # The length of the stream is known only at its end: so keep fewer and fewer, always evenly spaced.
                if len(self._kept) > _MOST_KEPT:
                    every *= 2
                    self._kept = {row: record for row, record in self._kept.items() if row % every == 0}
            yield found

    def kept(self, readable: NDArray[np.bool_]) -> RecordSource:
        """The images that were kept. readable: which of all images could be read."""
        records = [record for row, record in self._kept.items() if readable[row]]
        labels = torch.tensor([-1 if record.label is None else record.label for record in records])
        return RecordSource(name=self.name, classes=self.classes, labels=labels, records=records)

    def names(self, rows: Iterable[int]) -> dict[int, str]:
        """The names of the images of these rows."""
        wanted = set(rows)
        self._names_file.seek(0)
        return {row: json.loads(line) for row, line in enumerate(self._names_file) if row in wanted}
