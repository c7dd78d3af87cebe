"""Turns batches of images into the members of a shard, in worker processes."""

from dataclasses import dataclass, field
from typing import TypeAlias

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import SkippedImage
from flexpredict.data.sources.streams import Record
from flexpredict.data.workers import set_current_image
from flexpredict.prepare.packing.shard_writing import LeftOut, PackedImage, pack_image

# Images by their number in the source, which a worker reads; or with what a stream gave for each.
Batch: TypeAlias = range | list[tuple[int, Record | UnreadableImage]]
Packed: TypeAlias = list[PackedImage | LeftOut]


@dataclass(frozen=True)
class Packer:
    """Makes the members of a shard from images. `source` is None where the batches hold the records of a stream."""

    source: ImageSource | None = field(repr=False)
    size: int
    quality: int

    def __call__(self, batch: Batch) -> Packed:
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

    def _pack(self, index: int, record: Record | UnreadableImage) -> PackedImage | LeftOut:
        set_current_image(record.name)
        try:
            if isinstance(record, UnreadableImage):
                raise record
            label = None if record.label is None or record.label < 0 else record.label
            return pack_image(index, record.encoded, record.name, label, self.size, self.quality)
        except UnreadableImage as failure:
            return LeftOut(index, SkippedImage(failure.name, failure.reason))
        finally:
            set_current_image("")
