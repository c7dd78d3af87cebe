"""A source or a stream after its images were examined; from here on, the two are alike."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, Record, RecordSource, evenly_spaced
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import Entry, ImageStream, all_entries
from flexpredict.errors import UserError
from flexpredict.prepare.inspection.examination import Findings, add_up, examine_source, examine_stream
from flexpredict.progress import Counting

_MOST_KEPT = 48


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
    examine = _examine_stream if is_stream(images) else _examine_source
    examined: Examined = examine(images, sample, workers, console)  # type: ignore[arg-type]
    if not len(examined.findings.rows):
        raise UserError(f"There are no images in {images.name}.")
    return examined


def _examine_source(source: ImageSource, sample: int | None, workers: int, console: Console) -> Examined:
    indices = np.arange(len(source)) if sample is None else np.array(evenly_spaced(len(source), sample))
    findings = _counted(examine_source(source, indices, workers), len(indices), console)
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
        names={row: source.describe(int(indices[row])) for row in _members(duplicates)},
    )


def _examine_stream(stream: ImageStream, sample: int | None, workers: int, console: Console) -> Examined:
    expected = min((count for count in (sample, stream.length) if count is not None), default=None)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as names_file:
        passing = PassingStream(stream, sample, names_file)
        findings = _counted(examine_stream(passing, workers), expected, console)
        duplicates = findings.duplicates()
        names = passing.names(_members(duplicates))
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


def _counted(parts: Iterator[Findings], total: int | None, console: Console) -> Findings:
    done = []
    with Counting(console, "examining", "images", total) as counting:
        for part in parts:
            done.append(part)
            counting.add(len(part.rows))
    return add_up(done)


def _members(groups: list[NDArray[np.int64]]) -> Iterator[int]:
    return (row for group in groups for row in group.tolist())


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
