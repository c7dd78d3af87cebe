"""The stream of training batches, the same for any number of ranks and workers, and after a restart.

Epochs are laid end to end, each a permutation of all images, and step s takes the positions s * batch_size and
following of that endless stream; a batch may hold the end of one epoch and the beginning of the next. What stands
at a position, and the crop made of it, are pure functions of the seed.
"""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from flexpredict.data.augmentation import PRESETS, Augmentation, blur_and_grey, draw_crops
from flexpredict.data.sources import ImageSource
from flexpredict.errors import UserError
from flexpredict.randomness import permutation, sample_keys, stream_key

# So many images in a row, tried for one place in a batch, make a broken data set and not a broken file.
_ATTEMPTS = 12


@dataclass(frozen=True)
class Skipped:
    """An image that could not be read, and in whose place another was taken."""

    path: str
    reason: str


@dataclass(frozen=True)
class Batch:
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64, of the images that were read
    skipped: list[Skipped] = field(default_factory=list)

    def pin_memory(self) -> "Batch":
        """Called by the DataLoader."""
        return replace(self, images=self.images.pin_memory())


def training_batches(
    source: ImageSource,
    augmentation: Augmentation,
    image_size: tuple[int, int],
    *,
    seed: int,
    batch_size: int,
    first_step: int,
    last_step: int,
    rank: int = 0,
    world_size: int = 1,
    workers: int = 0,
) -> Iterator[Batch]:
    """This rank's share of the batches of steps first_step … last_step - 1. `batch_size` is that of all ranks."""
    if batch_size < 1 or batch_size % world_size:
        raise UserError(
            f"batch_size is {batch_size}, which cannot be shared equally by {world_size} processes:"
            f" use a multiple of {world_size}."
        )
    prepare = _TrainingBatch(source, augmentation, image_size, seed, batch_size, rank, world_size)
    return _prepared(prepare, range(first_step, last_step), workers)


def evaluation_batches(
    source: ImageSource, image_size: tuple[int, int], batch_size: int, *, workers: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images once, in order, each its largest centred crop: images b 3 H W uint8, indices b int64."""
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; use at least 1.")
    steps = range(-(-len(source) // batch_size))
    for batch in _prepared(_EvaluationBatch(source, image_size, batch_size), steps, workers):
        yield batch.images, batch.indices


def sample_order(seed: int, length: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The epoch and the image of each position in the endless stream: positions B -> B, B."""
    epochs = positions // length
    indices = torch.empty_like(positions)
    for epoch in set(epochs.tolist()):
        here = epochs == epoch
        indices[here] = _epoch_order(seed, length, epoch)[positions[here] % length]
    return epochs, indices


@lru_cache(maxsize=2)
def _epoch_order(seed: int, length: int, epoch: int) -> Tensor:
    return permutation(stream_key(seed, "order", epoch), length)


@dataclass(frozen=True)
class _TrainingBatch:
    source: ImageSource
    augmentation: Augmentation
    image_size: tuple[int, int]
    seed: int
    batch_size: int
    rank: int
    world_size: int

    def __call__(self, step: int) -> Batch:
        share = self.batch_size // self.world_size
        first = step * self.batch_size + self.rank * share
        epochs, wanted = sample_order(self.seed, len(self.source), torch.arange(first, first + share))
        crops = draw_crops(self.augmentation, self._keys("augmentation", epochs, wanted))
        images, failures = self.source.read(wanted, crops, self.image_size)
        indices, rows, attempt = wanted.clone(), torch.arange(share), 0
        skipped: list[Skipped] = []
        while failures:
            attempt += 1
            skipped += [Skipped(failure.path, failure.reason) for failure in failures.values()]
            if attempt == _ATTEMPTS:
                raise UserError(
                    f"{attempt} images in a row could not be read from {self.source.name}; the last was"
                    f" {skipped[-1].path}: {skipped[-1].reason}. Check that the files are complete and in reach."
                )
            rows = rows[list(failures)]
            # The crop stays that of the image which was wanted, so no image is seen twice in the same way.
            indices[rows] = self._keys(f"replacement {attempt}", epochs[rows], wanted[rows]) % len(self.source)
            images[rows], failures = self.source.read(indices[rows], crops[rows.numpy()], self.image_size)
        return Batch(blur_and_grey(images, crops), indices, skipped)

    def _keys(self, what: str, epochs: Tensor, indices: Tensor) -> Tensor:
        keys = torch.empty_like(indices)
        for epoch in set(epochs.tolist()):
            here = epochs == epoch
            keys[here] = sample_keys(stream_key(self.seed, what, epoch), indices[here])
        return keys


@dataclass(frozen=True)
class _EvaluationBatch:
    source: ImageSource
    image_size: tuple[int, int]
    batch_size: int

    def __call__(self, step: int) -> Batch:
        first = step * self.batch_size
        indices = torch.arange(first, min(first + self.batch_size, len(self.source)))
        images, failures = self.source.read(indices, draw_crops(PRESETS["none"], indices), self.image_size)
        for failure in failures.values():
            raise UserError(f"Cannot read {failure}. Mend or remove the file, then evaluate again.")
        return Batch(images, indices)


@dataclass(frozen=True)
class _ByStep(Dataset[Batch | UserError]):
    prepare: Callable[[int], Batch]

    def __getitem__(self, step: int) -> Batch | UserError:
        # Handed over, not raised: an exception that crosses processes loses its message in a traceback.
        try:
            return self.prepare(step)
        except UserError as error:
            return error


def _prepared(prepare: Callable[[int], Batch], steps: range, workers: int) -> Iterator[Batch]:
    loader = DataLoader(
        _ByStep(prepare),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_leave_interrupts_to_main,
        # The DataLoader seeds its workers, who do not care; from the global generator, if it is given none.
        generator=torch.Generator(),
    )
    for batch in loader:
        if isinstance(batch, UserError):
            raise batch
        yield batch


def _leave_interrupts_to_main(worker: int) -> None:
    """Ctrl-C reaches the workers as well, and each would print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
