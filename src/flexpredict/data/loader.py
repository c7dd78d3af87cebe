"""Training batches, which are the same for any number of ranks and workers, and after a restart.

Epochs follow each other, each a permutation of all images. Step s takes batch_size images from position
s * batch_size on, so a batch may hold the end of one epoch and the beginning of the next. The image at a position
and its crop are pure functions of the seed. (Streams have an order of their own: see `stream_loader.py`.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

from flexpredict.data.augmentation import blur_and_grayscale, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.streams import Place
from flexpredict.data.workers import Computed, WorkerResults
from flexpredict.errors import UserError
from flexpredict.randomness import sample_keys, shuffled, stream_key
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.sizes import Size

RESUME = "Then resume the run, which goes on from its last checkpoint."

# If this many images in a row cannot be read, the data set is broken and not a file.
_ATTEMPTS = 100


@dataclass(frozen=True)
class Batch:
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64, of the images that were read
    skipped: list[UnreadableImage] = field(default_factory=list)
    """Images that could not be read. In training, others have taken their places."""
    place: tuple[int, Place] | None = None
    """Of a stream: the consumer that made this batch, and how far it had come."""

    def pin_memory(self) -> "Batch":
        """Called by the DataLoader."""
        return replace(self, images=self.images.pin_memory())


Batches: TypeAlias = WorkerResults[Batch]


def training_batches(
    source: ImageSource,
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
) -> Batches:
    """This rank's share of the batches of steps first_step to last_step - 1. `batch_size` is that of all ranks.

    If there are several image sizes, each step has one of them.
    """
    share = rank_share(batch_size, world_size)
    prepare = _TrainingBatch(source, augmentation, tuple(image_sizes), seed, batch_size, rank, share)
    return Batches(Computed(prepare), range(first_step, last_step), workers, RESUME)


def evaluation_batches(
    source: ImageSource,
    image_size: Size,
    batch_size: int,
    *,
    first: int = 0,
    last: int | None = None,
    workers: int = 0,
) -> Batches:
    """Images first to last - 1 (default: all) once, in order, each as its largest centered crop.

    An image that cannot be read is left out of its batch, and listed in `skipped`.
    """
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size} must be at least 1.")
    last = len(source) if last is None else last
    prepare = _EvaluationBatch(source, image_size, batch_size, last)
    return Batches(Computed(prepare), range(first, last, batch_size), workers)


def sample_order(seed: int, length: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The epoch and the image at each position of the order of training: positions B -> B, B."""
    epochs = positions // length
    indices = torch.empty_like(positions)
    for epoch in set(epochs.tolist()):
        here = epochs == epoch
        indices[here] = shuffled(stream_key(seed, "order", epoch), length, positions[here] % length)
    return epochs, indices


def size_of_step(seed: int, step: int, image_sizes: Sequence[Size]) -> Size:
    return image_sizes[stream_key(seed, "image size", step) % len(image_sizes)]


def keys_by_epoch(seed: int, what: str, epochs: Tensor, samples: Tensor) -> Tensor:
    """One random stream for each sample in each epoch: B, B -> B."""
    keys = torch.empty_like(samples)
    for epoch in set(epochs.tolist()):
        here = epochs == epoch
        keys[here] = sample_keys(stream_key(seed, what, epoch), samples[here])
    return keys


def rank_share(batch_size: int, world_size: int) -> int:
    if batch_size < 1 or batch_size % world_size:
        raise UserError(
            f"batch_size={batch_size} cannot be shared equally by {world_size} processes. Use a multiple of"
            f" {world_size}."
        )
    return batch_size // world_size


@dataclass(frozen=True)
class _TrainingBatch:
    source: ImageSource
    augmentation: Augmentation
    image_sizes: tuple[Size, ...]
    seed: int
    batch_size: int
    rank: int
    share: int

    def __call__(self, step: int) -> Batch:
        image_size = size_of_step(self.seed, step, self.image_sizes)
        first = step * self.batch_size + self.rank * self.share
        epochs, wanted = sample_order(self.seed, len(self.source), torch.arange(first, first + self.share))
        crops = draw_crops(self.augmentation, keys_by_epoch(self.seed, "augmentation", epochs, wanted))
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
            others = keys_by_epoch(self.seed, f"replacement {attempt}", epochs[rows], wanted[rows])
            indices[rows] = others % len(self.source)
            images[rows], failures = self.source.read(indices[rows], crops[rows.numpy()], image_size)
        return Batch(blur_and_grayscale(images, crops), indices, skipped)


@dataclass(frozen=True)
class _EvaluationBatch:
    source: ImageSource
    image_size: Size
    batch_size: int
    last: int

    def __call__(self, first: int) -> Batch:
        indices = torch.arange(first, min(first + self.batch_size, self.last))
        images, failures = self.source.read(indices, draw_crops(PRESETS["none"], indices), self.image_size)
        if failures:
            read = torch.tensor([row for row in range(len(indices)) if row not in failures], dtype=torch.int64)
            images, indices = images[read], indices[read]
        return Batch(images, indices, list(failures.values()))
