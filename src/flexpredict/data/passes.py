"""One pass over all images of a source or stream, in order: worker processes do the work, some images at a time."""

import sys
from collections.abc import Callable, Container, Iterator
from functools import partial
from itertools import groupby
from typing import TypeAlias, TypeVar, cast

from flexpredict.data.image_files import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.data.sources.streams import Entry, ImageStream, all_entries, in_chunks, is_stream
from flexpredict.data.workers import Computed, WorkerResults, set_current_image
from flexpredict.errors import UserError

Result = TypeVar("Result")
# Numbers of images, which a worker reads from the source; or entries of a stream, which are sent to it.
_Chunk: TypeAlias = range | list[Entry]


def one_pass(
    images: ImageSource | ImageStream,
    work: Callable[[int, Record], Result],
    workers: int,
    *,
    at_once: int,
    bytes_at_once: int = 4 * 2**20,
    section: int = sys.maxsize,
    finished: Container[int] = (),
    remedy: str = "",
) -> WorkerResults[list[tuple[int, Result | UnreadableImage]]]:
    """The result of `work` for each image, by its number; or the UnreadableImage, which `work` may raise too.

    Args:
        at_once: images in a list, at most.
        bytes_at_once: images of a stream are sent to the workers; a list ends when they take this many bytes.
        section: number of images in a section. No list reaches from one section into the next.
        finished: numbers of sections to leave out.
        remedy: what to do after a worker has died, for the message.
    """
    source = None if is_stream(images) else images
    chunks = _chunks(images, at_once, bytes_at_once, section, finished)
    return WorkerResults(Computed(partial(_outcomes, source, work)), chunks, workers, remedy)


def _outcomes(
    source: ImageSource | None, work: Callable[[int, Record], Result], chunk: _Chunk
) -> list[tuple[int, Result | UnreadableImage]]:
    """source: None if chunks hold the records of a stream."""
    entries = (
        chunk if isinstance(chunk, list) else zip(chunk, map(cast(ImageSource, source).record, chunk), strict=True)
    )
    outcomes: list[tuple[int, Result | UnreadableImage]] = []
    for index, found in entries:
        set_current_image(found.name)
        try:
            outcomes.append((index, found if isinstance(found, UnreadableImage) else work(index, found)))
        except UnreadableImage as failure:
            outcomes.append((index, failure))
    set_current_image("")
    return outcomes


def _chunks(
    images: ImageSource | ImageStream, at_once: int, bytes_at_once: int, section: int, finished: Container[int]
) -> Iterator[_Chunk]:
    if is_stream(images):
        try:
            for number, entries in groupby(all_entries(images), key=lambda entry: entry[0] // section):
                if number not in finished:
                    yield from in_chunks(entries, at_once, bytes_at_once)
        except OSError as error:
            raise UserError(f"Reading {images.name} failed: {error}. Run the same command again.") from error
        return
    for number, start in enumerate(range(0, len(images), section)):
        if number not in finished:
            indices = range(start, min(start + section, len(images)))
            yield from (indices[first : first + at_once] for first in range(0, len(indices), at_once))
