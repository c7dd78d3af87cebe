"""Streams: images that are read one after the other, because they come from a program or do not fit on the disk.

A stream has pieces, each of which is read from its beginning to its end. Every consumer (a worker process of a
rank) reads its own pieces, so no image is read twice in a pass. It goes through the stream again and again, so no
consumer waits for another that has more to read. Order and crops depend on the seed and the place in the stream.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypeIs

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, Record, RecordSource, evenly_spaced
from flexpredict.data.sources.listing import digest
from flexpredict.randomness import permutation, stream_key

# Records that are shuffled together: apart from a batch, no others of a stream are in memory.
_SHUFFLED_RECORDS = 1024
_SHUFFLED_BYTES = 64 * 2**20
_PIECE_OF_SOURCE = 1024
_EMPTY_PASSES = 16
_NAMES_COMPARED = 1000

Entry: TypeAlias = tuple[int, Record | UnreadableImage]  # its number in the stream, and what was found there


class ImageStream(Protocol):
    """Images in pieces that are read from beginning to end."""

    name: str
    classes: tuple[str, ...] | None
    length: int | None  # number of images, if known

    @property
    def pieces(self) -> int: ...

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        """The images of a piece in order, and an UnreadableImage for each broken part."""


class Place(NamedTuple):
    """How far a consumer has come: the pass over the stream, and how many records it has taken in this pass."""

    epoch: int
    taken: int


class Taken(NamedTuple):
    """A record, the place after it, and its number, which no other record of the stream has."""

    record: Record
    place: Place
    ordinal: int


def is_stream(opened: ImageSource | ImageStream) -> TypeIs[ImageStream]:
    return not isinstance(opened, ImageSource)


def identity(images: ImageSource | ImageStream) -> dict[str, Any]:
    """Identify images without reading any: their number, and a digest of classes and names.

    Evenly spaced names count; of a stream, only its length, if known, and classes. Images may move to another folder.
    """
    if is_stream(images):
        return {"images": images.length, "list_of_images": digest(images.classes or ())}
    names = [images.describe(index) for index in evenly_spaced(len(images), _NAMES_COMPARED)]
    folder = os.path.commonprefix(names).rpartition("/")[0]  # noqa: RUF071 (not all names are paths)
    names = [name.removeprefix(folder) for name in names]
    return {"images": len(images), "list_of_images": digest([*(images.classes or ()), "", *names])}


def first_images(stream: ImageStream, count: int = 64) -> RecordSource:
    """The first images of a stream; fewer if it has fewer."""
    records = (found for _, found in all_entries(stream) if isinstance(found, Record))
    return RecordSource(name=stream.name, records=list(islice(records, count)))


def all_entries(stream: ImageStream) -> Iterator[Entry]:
    """The whole stream in order, numbered."""
    return enumerate(chain.from_iterable(stream.records(piece) for piece in range(stream.pieces)))


def in_chunks(entries: Iterable[Entry], most: int, most_bytes: int) -> Iterator[list[Entry]]:
    """Lists of at most `most` entries; a list also ends as soon as its images take `most_bytes`."""
    chunk: list[Entry] = []
    size = 0
    for number, found in entries:
        chunk.append((number, found))
        size += found.bytes_in_memory if isinstance(found, Record) else 0
        if len(chunk) == most or size >= most_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def consume(
    stream: ImageStream, seed: int, consumer: int, consumers: int, start: Place
) -> Iterator[Taken | UnreadableImage]:
    """This consumer's part of the stream from `start` on, shuffled, forever.

    Ends if several passes in a row held no image for this consumer, as it would otherwise search forever.
    """
    epoch, to_skip = start
    empty = 0
    while True:
        taken = 0
        entries = _own_entries(stream, seed, consumer, consumers, epoch)
        for chunk, numbered in enumerate(in_chunks(entries, _SHUFFLED_RECORDS, _SHUFFLED_BYTES)):
            yield from (found for _, found in numbered if isinstance(found, UnreadableImage))
            images = [(found, number) for number, found in numbered if isinstance(found, Record)]
            order = permutation(stream_key(seed, "stream order", epoch, consumer, chunk), len(images)).tolist()
            for position in order:
                taken += 1
                if taken > to_skip:
                    record, number = images[position]
                    yield Taken(record, Place(epoch, taken), number)
        empty = 0 if taken else empty + 1
        if empty == _EMPTY_PASSES:
            return
        epoch, to_skip = epoch + 1, 0


def _own_entries(stream: ImageStream, seed: int, consumer: int, consumers: int, epoch: int) -> Iterator[Entry]:
    """Whole pieces, if there are enough for all consumers; else every n-th record, for n consumers."""
    order = permutation(stream_key(seed, "pieces", epoch), stream.pieces).tolist()
    by_pieces = stream.pieces >= consumers
    number = 0
    for piece in order[consumer::consumers] if by_pieces else order:
        in_piece = 0
        for found in stream.records(piece):
            if isinstance(found, UnreadableImage):
                yield -1, found
                continue
            if by_pieces or number % consumers == consumer:
                yield (piece << 32) + in_piece, found
            number += 1
            in_piece += 1


@dataclass(eq=False)
class JoinedStream(ImageStream):
    """Several streams as one."""

    streams: list[ImageStream] = field(repr=False)
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.name = ", ".join(stream.name for stream in self.streams)
        lengths = [stream.length for stream in self.streams]
        self.length = None if None in lengths else sum(length or 0 for length in lengths)

    @property
    def pieces(self) -> int:
        return sum(stream.pieces for stream in self.streams)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        for stream in self.streams:
            if piece < stream.pieces:
                # Without labels: those of one stream would be taken for classes of another.
                for record in stream.records(piece):
                    yield Record(record.name, record.encoded) if isinstance(record, Record) else record
                return
            piece -= stream.pieces


@dataclass(eq=False)
class SourceAsStream(ImageStream):
    """A source read in order, to be joined with streams."""

    source: ImageSource

    def __post_init__(self) -> None:
        self.name, self.classes, self.length = self.source.name, self.source.classes, len(self.source)

    @property
    def pieces(self) -> int:
        return -(-len(self.source) // _PIECE_OF_SOURCE)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        if piece == 0:
            yield from self.source.problems
        first = piece * _PIECE_OF_SOURCE
        yield from map(self.source.record, range(first, min(first + _PIECE_OF_SOURCE, len(self.source))))
