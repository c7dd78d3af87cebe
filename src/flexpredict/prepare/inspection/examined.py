"""A source or a stream after its images were examined; from here on, the two are alike."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, evenly_spaced
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import ImageStream
from flexpredict.errors import UserError
from flexpredict.prepare.inspection.examination import Findings, add_up, examine_source, examine_stream
from flexpredict.prepare.inspection.passing_stream import PassingStream
from flexpredict.progress import Counting


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
