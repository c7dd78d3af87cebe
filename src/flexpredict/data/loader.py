"""Training batches, which are the same after a restart and, from a source, for any number of ranks and workers.

From a source, epochs follow each other, each a permutation of all images. Step s takes batch_size images from
position s * batch_size on, so a batch may hold the end of one epoch and the beginning of the next. The image at a
position and its crop are pure functions of the seed. A stream has its own order, see `sources/streams.py`: with the
same number of ranks and workers, reading continues where it stopped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from flexpredict.data.augmentation import Crops, blur_and_grayscale, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, RecordSource
from flexpredict.data.sources.streams import ImageStream, Place, Taken, consume, is_stream
from flexpredict.data.workers import Computed, WorkerResults
from flexpredict.errors import UserError
from flexpredict.randomness import sample_keys, shuffled, stream_key
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.sizes import Size

_REMEDY = "Then resume the run, which continues from its last checkpoint."
# If this many images in a row cannot be read, the whole data set is broken, not single files.
_ATTEMPTS = 100


@dataclass(frozen=True)
class Batch:
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64, of the images that were read
    skipped: list[UnreadableImage] = field(default_factory=list)
    """Images that could not be read. In training, others replace them."""
    place: tuple[int, Place] | None = None
    """For a stream: the consumer that made this batch, and its place after it."""

    def pin_memory(self) -> "Batch":
        """Called by the DataLoader."""
        return replace(self, images=self.images.pin_memory())


Batches: TypeAlias = WorkerResults[Batch]
Places: TypeAlias = Mapping[int, Place]  # by consumer


def training_batches(
    images: ImageSource | ImageStream,
    augmentation: Augmentation,
    image_sizes: Sequence[Size],
    *,
    seed: int,
    batch_size: int,
    first_step: int,
    last_step: int,
    rank: int = 0,
    world_size: int = 1,
    workers: int = 0,
    places: Places | None = None,
) -> Batches:
    """This rank's share of the batches of steps first_step to last_step - 1. `batch_size` is that of all ranks.

    If there are several image sizes, each step has one of them. places: where the consumers of a stream begin.
    """
    if batch_size < 1 or batch_size % world_size:
        raise UserError(
            f"batch_size={batch_size} cannot be shared equally by {world_size} processes. Use a multiple of"
            f" {world_size}."
        )
    views, share = _Views(augmentation, tuple(image_sizes), seed), batch_size // world_size
    if is_stream(images):
        readers = max(1, workers)
        starts = starting_places(places or {}, world_size * readers)
        dataset = _StreamBatches(images, views, share, range(first_step, last_step), rank * readers, readers, starts)
        return Batches(dataset, None, workers, _REMEDY)
    prepare = _TrainingBatch(images, views, share, batch_size, rank * share)
    return Batches(Computed(prepare), range(first_step, last_step), workers, _REMEDY)


def evaluation_batches(
    source: ImageSource,
    image_size: Size,
    batch_size: int,
    *,
    first: int = 0,
    last: int | None = None,
    workers: int = 0,
) -> Batches:
    """Images first to last - 1 (default: all) once, in order, see `evaluation_batch`."""
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size} must be at least 1.")
    wanted = range(len(source))[first:last]
    parts = (wanted[start : start + batch_size] for start in range(0, len(wanted), batch_size))
    return Batches(Computed(partial(evaluation_batch, source, image_size)), parts, workers)


def evaluation_batch(source: ImageSource, image_size: Size, wanted: range) -> Batch:
    """The largest centered crop of each of these images. Those that cannot be read are left out."""
    indices = torch.arange(wanted.start, wanted.stop)
    images, failures = source.read(indices, draw_crops(PRESETS["none"], indices), image_size)
    if failures:
        read = torch.tensor([row for row in range(len(indices)) if row not in failures], dtype=torch.int64)
        images, indices = images[read], indices[read]
    return Batch(images, indices, list(failures.values()))


def sample_order(seed: int, length: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The epoch and the image at each position of the order of training: positions B -> B, B."""
    epochs = positions // length
    indices = torch.empty_like(positions)
    for epoch in set(epochs.tolist()):
        here = epochs == epoch
        indices[here] = shuffled(stream_key(seed, "order", epoch), length, positions[here] % length)
    return epochs, indices


def starting_places(places: Places, consumers: int) -> dict[int, Place]:
    """Where each consumer begins: at its place, or with a new pass if the number of consumers has changed."""
    if set(places) == set(range(consumers)):
        return dict(places)
    new_pass = max((place.epoch + 1 for place in places.values()), default=0)
    return {consumer: Place(new_pass, 0) for consumer in range(consumers)}


@dataclass(frozen=True)
class _Views:
    """The view of an image in training: a pure function of seed, step, epoch and sample."""

    augmentation: Augmentation
    image_sizes: tuple[Size, ...]
    seed: int

    def size(self, step: int) -> Size:
        return self.image_sizes[stream_key(self.seed, "image size", step) % len(self.image_sizes)]

    def crops(self, epochs: Tensor, samples: Tensor) -> Crops:
        return draw_crops(self.augmentation, self.keys("augmentation", epochs, samples))

    def keys(self, what: str, epochs: Tensor, samples: Tensor) -> Tensor:
        """One random stream for each sample in each epoch: B, B -> B."""
        keys = torch.empty_like(samples)
        for epoch in set(epochs.tolist()):
            here = epochs == epoch
            keys[here] = sample_keys(stream_key(self.seed, what, epoch), samples[here])
        return keys


@dataclass(frozen=True)
class _TrainingBatch:
    source: ImageSource
    views: _Views
    share: int
    batch_size: int
    first: int  # of this rank, in a batch

    def __call__(self, step: int) -> Batch:
        image_size = self.views.size(step)
        first = step * self.batch_size + self.first
        epochs, wanted = sample_order(self.views.seed, len(self.source), torch.arange(first, first + self.share))
        crops = self.views.crops(epochs, wanted)
        images, failures = self.source.read(wanted, crops, image_size)
        indices, rows, attempt = wanted.clone(), torch.arange(self.share), 0
        skipped: list[UnreadableImage] = []
        while failures:
            attempt += 1
            skipped += failures.values()
            if attempt == _ATTEMPTS:
                raise UserError(
                    f"{attempt} images in a row could not be read from {self.source.name}; the last was"
                    f" {skipped[-1]}. Check that the files are complete and accessible."
                )
            rows = rows[list(failures)]
            # The crop is still the one drawn for the unreadable image, so no image is seen twice in the same crop.
            indices[rows] = self.views.keys(f"replacement {attempt}", epochs[rows], wanted[rows]) % len(self.source)
            images[rows], failures = self.source.read(indices[rows], crops[rows.numpy()], image_size)
        return Batch(blur_and_grayscale(images, crops), indices, skipped)


@dataclass
class _StreamBatches(IterableDataset[Batch | UserError]):
    stream: ImageStream
    views: _Views
    share: int
    steps: range
    first_consumer: int  # of this rank
    readers: int  # consumers of this rank: its workers, or this process
    starts: dict[int, Place]  # of the consumers of all ranks

    def __iter__(self) -> Iterator[Batch | UserError]:
        info = get_worker_info()
        # The DataLoader takes batches from its workers in turn, so step s must come from worker s % workers.
        first = self.steps.start + (info.id if info else 0)
        consumer = self.first_consumer + first % self.readers
        records = consume(self.stream, self.views.seed, consumer, len(self.starts), self.starts[consumer])
        for step in range(first, self.steps.stop, self.readers):
            try:
                yield self._batch(step, consumer, records)
            except UserError as error:
                yield error
                return

    def _batch(self, step: int, consumer: int, records: Iterator[Taken | UnreadableImage]) -> Batch:
        taken, skipped = self._take(consumer, records)
        epochs = torch.tensor([record.place.epoch for record in taken])
        ordinals = torch.tensor([record.ordinal for record in taken])
        crops, size = self.views.crops(epochs, ordinals), self.views.size(step)
        source = RecordSource(name=self.stream.name, records=[record.record for record in taken])
        rows = torch.arange(self.share)  # the record that each row of the batch shows
        images, failures = source.read(rows, crops, size)
        skipped += failures.values()
        readable, broken = [row for row in range(self.share) if row not in failures], list(failures)
        if not readable:
            raise UserError(
                f"Of {self.share} images in a row from {self.stream.name} none could be read; the last was"
                f" {skipped[-1]}. Check that the data is complete."
            )
        if broken:
            # Another image of the batch replaces a broken one, in the crop that was drawn for the broken one. So the
            # stream always advances by exactly one batch, and its place is enough to continue from.
            rows[broken] = torch.tensor([readable[number % len(readable)] for number in range(len(broken))])
            images[broken], _ = source.read(rows[broken], crops[np.array(broken)], size)
        return Batch(blur_and_grayscale(images, crops), ordinals[rows], skipped, (consumer, taken[-1].place))

    def _take(
        self, consumer: int, records: Iterator[Taken | UnreadableImage]
    ) -> tuple[list[Taken], list[UnreadableImage]]:
        """The records of a batch, and what was broken between them."""
        taken: list[Taken] = []
        skipped: list[UnreadableImage] = []
        while len(taken) < self.share:
            try:
                record = next(records, None)
            except OSError as error:
                raise UserError(f"{self.stream.name} can no longer be read: {error}.") from error
            if isinstance(record, Taken):
                taken.append(record)
            elif record is not None:
                skipped.append(record)
            else:
                why = f", for example {skipped[0]}" if skipped else ""
                raise UserError(f"A whole pass over {self.stream.name} gave no images to reader {consumer}{why}.")
        return taken, skipped
