"""Images in batches with their names and labels, in order; the same from a source and from a stream."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TypeAlias

import torch
from torch import Tensor

from flexpredict.data.augmentation import Crops, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batches
from flexpredict.data.sources.image_source import ImageSource, decode_row
from flexpredict.data.sources.streams import ImageStream, Record
from flexpredict.errors import UserError
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.extraction import Extraction

StreamEntry: TypeAlias = tuple[int, Record | UnreadableImage]  # its number in the stream, and what was found there


@dataclass(frozen=True)
class NamedBatch:
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64
    labels: Tensor  # b int64, -1 where an image has none
    names: list[str]
    skipped: list[UnreadableImage]


def source_batches(
    source: ImageSource, image_size: tuple[int, int], how: Extraction, first: int, last: int
) -> Iterator[NamedBatch]:
    """Images first … last - 1."""
    batches = evaluation_batches(source, image_size, how.batch_size, first=first, last=last, workers=how.workers)
    for batch in batches:
        labels = torch.full_like(batch.indices, -1) if source.labels is None else source.labels[batch.indices]
        names = [source.describe(index) for index in batch.indices.tolist()]
        yield NamedBatch(batch.images, batch.indices, labels, names, batch.skipped)


def stream_entries(stream: ImageStream, first: int) -> Iterator[StreamEntry]:
    """All that a stream holds from number `first` on."""
    found = chain.from_iterable(stream.records(piece) for piece in range(stream.pieces))
    entries = islice(enumerate(found), first, None)
    try:
        yield from entries
    except OSError as error:
        raise UserError(f"Reading {stream.name} failed: {error}. Run the same again to go on.") from error


def stream_batches(
    entries: Iterator[StreamEntry], image_size: tuple[int, int], how: Extraction
) -> Iterator[NamedBatch]:
    """Only one process can read a stream, so images are decoded in threads, which run in parallel while decoding."""
    with ThreadPoolExecutor(max(1, how.workers)) as pool:
        while taken := list(islice(entries, how.batch_size)):
            crops = draw_crops(PRESETS["none"], torch.tensor([index for index, _ in taken]))
            decoded = list(pool.map(partial(_decoded, crops=crops, image_size=image_size), range(len(taken)), taken))
            read = [row for row, image in enumerate(decoded) if isinstance(image, Tensor)]
            records = [record for row in read if isinstance(record := taken[row][1], Record)]
            images = [image for image in decoded if isinstance(image, Tensor)]
            yield NamedBatch(
                torch.stack(images) if images else torch.empty(0, 3, *image_size, dtype=torch.uint8),
                torch.tensor([taken[row][0] for row in read], dtype=torch.int64),
                torch.tensor([-1 if record.label is None else record.label for record in records], dtype=torch.int64),
                [record.name for record in records],
                [failure for failure in decoded if isinstance(failure, UnreadableImage)],
            )


def _decoded(row: int, entry: StreamEntry, crops: Crops, image_size: tuple[int, int]) -> Tensor | UnreadableImage:
    found = entry[1]
    if isinstance(found, UnreadableImage):
        return found
    try:
        return decode_row(found.encoded, found.name, row, crops, image_size)
    except UnreadableImage as failure:
        return failure
