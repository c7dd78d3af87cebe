"""Training batches from a stream. With the same number of ranks and workers, reading goes on where it stopped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from flexpredict.data.augmentation import blur_and_grayscale, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import RESUME, Batch, Batches, keys_by_epoch, rank_share, size_of_step
from flexpredict.data.sources.image_source import RecordSource
from flexpredict.data.sources.streams import ImageStream, Place, Taken, consume
from flexpredict.errors import UserError
from flexpredict.settings.augmentation import Augmentation
from flexpredict.sizes import Size

Places = Mapping[int, Place]  # by consumer


def stream_batches(
    stream: ImageStream,
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
    """This rank's share of the batches of steps first_step to last_step - 1; each consumer goes on from its place.

    If there were more or fewer consumers when the places were recorded, a new pass over the stream begins.
    """
    consumers = world_size * max(1, workers)
    starts = starting_places(places or {}, consumers)
    dataset = _StreamBatches(
        stream,
        augmentation,
        tuple(image_sizes),
        seed,
        rank_share(batch_size, world_size),
        range(first_step, last_step),
        rank,
        consumers,
        max(1, workers),
        starts,
    )
    return Batches(dataset, None, workers, RESUME)


def starting_places(places: Places, consumers: int) -> dict[int, Place]:
    """Where each consumer begins: at its place; with a new pass if there were more or fewer of them."""
    if set(places) == set(range(consumers)):
        return dict(places)
    new_pass = max((place.epoch + 1 for place in places.values()), default=0)
    return {consumer: Place(new_pass, 0) for consumer in range(consumers)}


@dataclass
class _StreamBatches(IterableDataset[Batch | UserError]):
    stream: ImageStream
    augmentation: Augmentation
    image_sizes: tuple[Size, ...]
    seed: int
    share: int
    steps: range
    rank: int
    consumers: int
    workers: int
    starts: dict[int, Place]

    def __iter__(self) -> Iterator[Batch | UserError]:
        info = get_worker_info()
        # The DataLoader takes batches from its workers in turn, and step s is to be that of worker s % workers.
        first = self.steps.start + (info.id if info else 0)
        consumer = self.rank * self.workers + first % self.workers
        records = consume(self.stream, self.seed, consumer, self.consumers, self.starts[consumer])
        for step in range(first, self.steps.stop, self.workers):
            try:
                yield self._batch(step, consumer, records)
            except UserError as error:
                yield error
                return

    def _batch(self, step: int, consumer: int, records: Iterator[Taken | UnreadableImage]) -> Batch:
        taken, skipped = self._take(consumer, records)
        epochs = torch.tensor([record.place.epoch for record in taken])
        ordinals = torch.tensor([record.ordinal for record in taken])
        crops = draw_crops(self.augmentation, keys_by_epoch(self.seed, "augmentation", epochs, ordinals))
        size = size_of_step(self.seed, step, self.image_sizes)
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
            # Another image of the batch takes its place, in the crop that was drawn for the broken one. The stream
            # does not advance by more than the batch, whatever is broken in it, so a place is all to remember.
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
