"""Makes the parts that are missing from a folder; several processes share them."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from typing import TypeAlias

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor

from flexpredict.data.augmentation import Crops, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batches
from flexpredict.data.sources.image_source import ImageSource, Record, decode_row
from flexpredict.data.sources.streams import ImageStream
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.features.encoding import PatchType, encode, require_finite
from flexpredict.features.parts import Part, PartsFolder, StoredPart
from flexpredict.progress import Counting
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.extraction import Extraction


@dataclass(frozen=True)
class NamedBatch:
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64
    labels: Tensor  # b int64, -1 where an image has none
    names: list[str]
    skipped: list[UnreadableImage]


StreamEntry: TypeAlias = tuple[int, Record | UnreadableImage]  # its number in the stream, and what was found there


@dataclass(frozen=True)
class PartMaker:
    """Makes the parts of one source or stream.

    Args:
        parts: where they are kept. Parts that are there already are not made again.
        images_in_part: the number of images in each part but the last.
        patches: keep the features of all patches too, as numbers of this type.
        fabric: the processes that share the work.
    """

    encoder: ImageEncoder
    how: Extraction
    parts: PartsFolder
    images_in_part: int
    fabric: Fabric
    console: Console
    patches: PatchType | None = None

    def from_source(self, source: ImageSource) -> list[StoredPart]:
        """All parts, in order, once all processes have made theirs."""
        size = self.images_in_part
        numbers = range(-(-len(source) // size))
        finished = self.parts.finished()
        missing = [number for number in numbers if number not in finished]
        self.fabric.barrier()  # None makes a part before all have looked, so that all see the same parts missing.
        done = len(source) - sum(min(size, len(source) - number * size) for number in missing)
        with Counting(self.console, f"features of {source.name}", "images", len(source), done=done) as counting:
            for number in missing[self.fabric.global_rank :: self.fabric.world_size]:
                last = min((number + 1) * size, len(source))
                batches = source_batches(source, self.how.size_for(self.encoder), self.how, number * size, last)
                self._make(number, batches, counting)
        self.fabric.barrier()
        return [self.parts.stored(number) for number in numbers]

    def from_stream(self, stream: ImageStream) -> list[StoredPart]:
        """All parts, in order: from the first that is missing to the end of the stream."""
        size = self.images_in_part
        # A part that is not full was the end of the stream, which may have grown since.
        full = {number for number in self.parts.finished() if self.parts.stored(number).images() == size}
        first = next(number for number in count() if number not in full)
        entries = stream_entries(stream, first * size)
        label = f"features of {stream.name}"
        with Counting(self.console, label, "images", stream.length, done=first * size) as counting:
            for number in count(first):
                batches = stream_batches(islice(entries, size), self.how.size_for(self.encoder), self.how)
                if self._make(number, batches, counting) < size:
                    break
        return [self.parts.stored(number) for number in range(number + 1)]

    def _make(self, number: int, batches: Iterator[NamedBatch], counting: Counting) -> int:
        """Make and save one part, and return its number of images. Nothing of it stays in memory."""
        part = encode_part(
            self.encoder,
            batches,
            self.how,
            self.patches,
            self.fabric.device,
            # Processes do not tell each other how far they are: this one's progress stands for all.
            advance=lambda images: counting.add(images * self.fabric.world_size),
        )
        self.parts.save(number, part)
        return len(part.names) + len(part.skipped)


@torch.no_grad()
def encode_part(
    encoder: ImageEncoder,
    batches: Iterable[NamedBatch],
    how: Extraction,
    patches: PatchType | None = None,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda count: None,
) -> Part:
    """All batches as one part, on the CPU. If no image can be read, the features have no width: 0 0."""
    encoder.eval().to(device)
    features: list[Tensor] = []
    patch_features: list[Tensor] = []
    indices, labels = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
    names: list[str] = []
    skipped: list[UnreadableImage] = []
    for batch in batches:
        skipped += batch.skipped
        if batch.names:
            pooled, found = encode(encoder, batch.images.to(device), how, patches is not None)
            pooled = pooled.cpu()
            require_finite(pooled, encoder, batch.names.__getitem__, torch.arange(len(pooled)))
            features.append(pooled)
            if found is not None:
                patch_features.append(_rounded(found, patches, encoder, batch.names))
            indices.append(batch.indices)
            labels.append(batch.labels)
            names += batch.names
        advance(len(batch.names) + len(batch.skipped))
    return Part(
        torch.cat(features or [torch.empty(0, 0)]),
        torch.cat(indices),
        torch.cat(labels),
        names,
        skipped,
        torch.cat(patch_features or [torch.empty(0, 0, 0)]) if patches else None,
    )


def _rounded(patches: Tensor, patch_type: PatchType | None, encoder: ImageEncoder, names: list[str]) -> Tensor:
    rounded = patches.to(torch.float16 if patch_type == "float16" else torch.float32).cpu()
    bad = ~torch.isfinite(rounded).flatten(1).all(dim=1)
    if bad.any():
        raise UserError(
            f"{encoder.what} gives patches for {names[int(bad.nonzero()[0])]} that {patch_type} cannot hold. Use "
            "dtype=float32 and precision=32-true. If they are used already, the encoder diverged."
        )
    return rounded


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
