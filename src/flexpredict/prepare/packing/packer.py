"""Turns batches of images into the members of a shard, in worker processes."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import SkippedImage
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import Entry, ImageStream, Record, all_entries, in_chunks
from flexpredict.data.workers import set_current_image
from flexpredict.prepare.packing.shard_writing import PackedImage, pack_image

# Numbers of images, which the worker reads from the source; or entries of a stream.
Batch: TypeAlias = range | list[Entry]

# Enough images in a batch that handing them over costs little, few enough that a small set keeps all workers busy and
# that Ctrl-C is obeyed at once. Records of a stream are sent to the worker, hence their limit.
_IMAGES_AT_ONCE = 16
_BYTES_AT_ONCE = 4 * 2**20


@dataclass(frozen=True)
class Packer:
    """Makes the members of a shard from images. `source` is None where the batches hold the records of a stream."""

    source: ImageSource | None = field(repr=False)
    size: int
    quality: int

    def __call__(self, batch: Batch) -> list[PackedImage]:
        if isinstance(batch, range):
            return [self._pack(index, self._read(index)) for index in batch]
        return [self._pack(index, record) for index, record in batch]

    def _read(self, index: int) -> Record | UnreadableImage:
        assert self.source is not None
        name = self.source.describe(index)
        set_current_image(name)
        try:
            label = None if self.source.labels is None else int(self.source.labels[index])
            return Record(name, self.source.encoded(index), label)
        except UnreadableImage as failure:
            return failure

    def _pack(self, index: int, record: Record | UnreadableImage) -> PackedImage:
        set_current_image(record.name)
        try:
            if isinstance(record, UnreadableImage):
                raise record
            label = None if record.label is None or record.label < 0 else record.label
            return pack_image(index, record.encoded, record.name, label, self.size, self.quality)
        except UnreadableImage as failure:
            return PackedImage(index, skipped=SkippedImage(failure.name, failure.reason))
        finally:
            set_current_image("")


def batches_of(
    images: ImageSource | ImageStream, images_per_shard: int, finished: Collection[int]
) -> Iterator[Batch]:
    """All images in order, except those of finished shards. No batch reaches into the next shard."""
    if is_stream(images):
        for number, entries in groupby(all_entries(images), key=lambda entry: entry[0] // images_per_shard):
            if number not in finished:
                yield from in_chunks(entries, _IMAGES_AT_ONCE, _BYTES_AT_ONCE)
        return
    for number, start in enumerate(range(0, len(images), images_per_shard)):
        if number not in finished:
            shard = range(start, min(start + images_per_shard, len(images)))
            yield from (shard[first : first + _IMAGES_AT_ONCE] for first in range(0, len(shard), _IMAGES_AT_ONCE))
