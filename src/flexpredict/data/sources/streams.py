"""Images that come one after the other: for what cannot be read at any place, or does not fit on the disk.

A stream has pieces, each of which is read from its beginning to its end. Every consumer (a worker process of a
rank) reads pieces of its own, so no image is read twice in a pass; it goes through the stream again and again, so
none ever has to wait for another that has more to read. Order and crops are functions of the seed and of the
place in the stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from flexpredict.data.decoding import Encoded, UnreadableImage, read_size
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.randomness import permutation, stream_key

# Records that are shuffled together: all that is in memory of a stream at a time, apart from a batch.
_SHUFFLED_RECORDS = 1024
_SHUFFLED_BYTES = 64 * 2**20
_PIECE_OF_SOURCE = 1024
_EMPTY_PASSES = 16


@dataclass(frozen=True)
class Record:
    """An image of a stream, as it was stored."""

    name: str
    encoded: Encoded = field(repr=False)
    label: int | None = None

    @property
    def bytes_in_memory(self) -> int:
        return self.encoded.nbytes if isinstance(self.encoded, np.ndarray) else len(self.encoded)


class ImageStream(Protocol):
    """Images in pieces that are read from beginning to end."""

    name: str
    classes: tuple[str, ...] | None
    length: int | None  # images in it, where that is known

    @property
    def pieces(self) -> int: ...

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        """The images of a piece in their order, and what was found broken on the way."""


class Place(NamedTuple):
    """How far a consumer has come: in this pass (epoch) it has taken so many records."""

    epoch: int
    taken: int


class Taken(NamedTuple):
    """A record, the place after it, and a number that no other record of the stream has."""

    record: Record
    place: Place
    ordinal: int


def stream_sizes(stream: ImageStream, sample: int = 64) -> list[tuple[int, int]]:
    """Height and width of the first images of a stream."""
    sizes: list[tuple[int, int]] = []
    for piece in range(stream.pieces):
        for record in stream.records(piece):
            if isinstance(record, Record):
                try:
                    sizes.append(read_size(record.encoded, record.name))
                except UnreadableImage:
                    continue
            if len(sizes) == sample:
                return sizes
    return sizes


def consume(
    stream: ImageStream, seed: int, consumer: int, consumers: int, start: Place
) -> Iterator[Taken | UnreadableImage]:
    """This consumer's part of the stream from `start` on, for ever; shuffled.

    Ends if several passes in a row held nothing for it, which would otherwise be for ever as well.
    """
    epoch, to_skip = start
    empty = 0
    while True:
        taken = 0
        for chunk, records in enumerate(_chunks(_own_records(stream, seed, consumer, consumers, epoch))):
            images = [entry for entry in records if not isinstance(entry, UnreadableImage)]
            yield from (entry for entry in records if isinstance(entry, UnreadableImage))
            order = permutation(stream_key(seed, "stream order", epoch, consumer, chunk), len(images)).tolist()
            for position in order:
                taken += 1
                if taken > to_skip:
                    record, ordinal = images[position]
                    yield Taken(record, Place(epoch, taken), ordinal)
        empty = 0 if taken else empty + 1
        if empty == _EMPTY_PASSES:
            return
        epoch, to_skip = epoch + 1, 0


def _own_records(
    stream: ImageStream, seed: int, consumer: int, consumers: int, epoch: int
) -> Iterator[tuple[Record, int] | UnreadableImage]:
    """Whole pieces, where there are enough of them; else every so-manyth record of all."""
    order = permutation(stream_key(seed, "pieces", epoch), stream.pieces).tolist()
    by_pieces = stream.pieces >= consumers
    number = 0
    for piece in order[consumer::consumers] if by_pieces else order:
        in_piece = 0
        for record in stream.records(piece):
            if isinstance(record, UnreadableImage):
                yield record
                continue
            if by_pieces or number % consumers == consumer:
                yield record, (piece << 32) + in_piece
            number += 1
            in_piece += 1


def _chunks(
    records: Iterator[tuple[Record, int] | UnreadableImage],
) -> Iterator[list[tuple[Record, int] | UnreadableImage]]:
    chunk: list[tuple[Record, int] | UnreadableImage] = []
    size = 0
    for entry in records:
        chunk.append(entry)
        size += 0 if isinstance(entry, UnreadableImage) else entry[0].bytes_in_memory
        if len(chunk) == _SHUFFLED_RECORDS or size >= _SHUFFLED_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


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
    """A source that could be read anywhere, read in order: to be joined with streams."""

    source: ImageSource

    def __post_init__(self) -> None:
        self.name, self.classes, self.length = self.source.name, self.source.classes, len(self.source)

    @property
    def pieces(self) -> int:
        return -(-len(self.source) // _PIECE_OF_SOURCE)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        if piece == 0:
            yield from self.source.problems
        labels = self.source.labels
        for index in range(piece * _PIECE_OF_SOURCE, min((piece + 1) * _PIECE_OF_SOURCE, len(self.source))):
            try:
                label = None if labels is None else int(labels[index])
                yield Record(self.source.describe(index), self.source.encoded(index), label)
            except UnreadableImage as failure:
                yield failure
