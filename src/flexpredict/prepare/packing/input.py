"""What is packed: a source or a stream, cut into batches for the workers."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.identity import identity
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import SkippedImage
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import ImageStream, Record
from flexpredict.prepare.packing.packer import Batch

# Images that a worker gets at a time: enough that handing them over costs little, few enough that a small set keeps
# all workers busy and that Ctrl-C is obeyed at once. Records of a stream are sent to the worker, hence their bound.
_IN_BATCH = 16
_BYTES_IN_BATCH = 4 * 2**20


@dataclass(frozen=True)
class PackingInput:
    """Images in a fixed order."""

    name: str
    classes: tuple[str, ...] | None
    length: int | None
    problems: tuple[SkippedImage, ...]  # found while listing; in a stream they come up on the way
    identity: dict[str, Any]
    source: ImageSource | None  # what workers read from; None if batches bring their records along
    batches: Callable[[int, Collection[int]], Iterator[Batch]]
    """Of all images in order, given how many make a shard, and which shards to leave out."""


def packing_input(images: ImageSource | ImageStream) -> PackingInput:
    if is_stream(images):
        batches = partial(_stream_batches, images)
        return PackingInput(images.name, images.classes, images.length, (), identity(images), None, batches)
    return PackingInput(
        name=images.name,
        classes=images.classes,
        length=len(images),
        problems=tuple(SkippedImage(problem.name, problem.reason) for problem in images.problems),
        identity=identity(images),
        source=images,
        batches=partial(_source_batches, len(images)),
    )


def _source_batches(length: int, images_per_shard: int, finished: Collection[int]) -> Iterator[Batch]:
    for number, start in enumerate(range(0, length, images_per_shard)):
        if number not in finished:
            stop = min(start + images_per_shard, length)
            yield from (range(first, min(first + _IN_BATCH, stop)) for first in range(start, stop, _IN_BATCH))


def _stream_batches(stream: ImageStream, images_per_shard: int, finished: Collection[int]) -> Iterator[Batch]:
    batch: list[tuple[int, Record | UnreadableImage]] = []
    size = 0
    records = (record for piece in range(stream.pieces) for record in stream.records(piece))
    for index, record in enumerate(records):
        if index // images_per_shard in finished:
            continue
        batch.append((index, record))
        size += 0 if isinstance(record, UnreadableImage) else record.bytes_in_memory
        end_of_shard = (index + 1) % images_per_shard == 0
        if len(batch) == _IN_BATCH or size >= _BYTES_IN_BATCH or end_of_shard:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
