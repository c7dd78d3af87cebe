"""The stream of training batches, the same for any number of ranks and workers, and after a restart.

Epochs are laid end to end, each a permutation of all images, and step s takes the positions s * batch_size and
following of that endless stream; a batch may hold the end of one epoch and the beginning of the next. What stands
at a position, and the crop made of it, are pure functions of the seed. (Sources that can only be streamed have an
order of their own: see `stream_loader.py`.)
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from flexpredict.data import now_reading
from flexpredict.data.augmentation import blur_and_grey, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.streams import Place
from flexpredict.errors import UserError
from flexpredict.randomness import sample_keys, shuffled, stream_key
from flexpredict.settings.augmentation import PRESETS, Augmentation

Size = tuple[int, int]

# So many images in a row, tried for one place in a batch, make a broken data set and not a broken file.
_ATTEMPTS = 100


@dataclass(frozen=True)
class Batch:
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64, of the images that were read
    skipped: list[UnreadableImage] = field(default_factory=list)
    """Images that could not be read, and in whose place others were taken."""
    place: tuple[int, Place] | None = None
    """Of a stream: which consumer made this batch, and how far it had come then."""

    def pin_memory(self) -> "Batch":
        """Called by the DataLoader."""
        return replace(self, images=self.images.pin_memory())


class Batches(Iterator[Batch]):
    """Batches made in worker processes, and an account of what a worker was doing when it died."""

    def __init__(self, dataset: Dataset[Batch | UserError], steps: range | None, workers: int) -> None:
        self._board = now_reading.new_board(workers)
        self._loader = iter(
            DataLoader(
                dataset,
                batch_size=None,
                sampler=steps,
                num_workers=workers,
                pin_memory=torch.cuda.is_available(),
                worker_init_fn=partial(now_reading.begin_worker, self._board),
                # The DataLoader seeds its workers, who do not care; from the global generator, if it is given none.
                generator=torch.Generator(),
            )
        )

    def __next__(self) -> Batch:
        with self.deaths_explained():
            batch = next(self._loader)
        if isinstance(batch, UserError):
            raise batch
        return batch  # type: ignore[no-any-return]

    @contextmanager
    def deaths_explained(self) -> Iterator[None]:
        """Says which image a worker was reading when it died. That may be raised anywhere, by a signal handler."""
        try:
            yield
        except RuntimeError as error:
            explanation = now_reading.explained(error, self._board)
            if explanation is None:
                raise
            raise UserError(f"{explanation} Then go on from the last checkpoint with resume=True.") from error


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
    """This rank's share of the batches of steps first_step … last_step - 1. `batch_size` is that of all ranks.

    Where there are several image sizes, each step has one of them.
    """
    share = rank_share(batch_size, world_size)
    prepare = _TrainingBatch(source, augmentation, tuple(image_sizes), seed, batch_size, rank, share)
    return Batches(_ByStep(prepare), range(first_step, last_step), workers)


def evaluation_batches(
    source: ImageSource,
    image_size: Size,
    batch_size: int,
    *,
    first: int = 0,
    last: int | None = None,
    workers: int = 0,
) -> Batches:
    """Images first … last - 1 (all by default) once, in order, each its largest centred crop.

    What cannot be read is left out of its batch, and named in `skipped`.
    """
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; use at least 1.")
    last = len(source) if last is None else last
    return Batches(
        _ByStep(_EvaluationBatch(source, image_size, batch_size, last)), range(first, last, batch_size), workers
    )


def sample_order(seed: int, length: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The epoch and the image of each position in the endless stream: positions B -> B, B."""
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
            f"batch_size is {batch_size}, which cannot be shared equally by {world_size} processes:"
            f" use a multiple of {world_size}."
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
                    f" {skipped[-1]}. Check that the files are complete and in reach."
                )
            rows = rows[list(failures)]
            # The crop stays that of the image which was wanted, so no image is seen twice in the same way.
            others = keys_by_epoch(self.seed, f"replacement {attempt}", epochs[rows], wanted[rows])
            indices[rows] = others % len(self.source)
            images[rows], failures = self.source.read(indices[rows], crops[rows.numpy()], image_size)
        return Batch(blur_and_grey(images, crops), indices, skipped)


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


@dataclass(frozen=True)
class _ByStep(Dataset[Batch | UserError]):
    prepare: Callable[[int], Batch]

    def __getitem__(self, step: int) -> Batch | UserError:
        # Handed over, not raised: an exception that crosses processes loses its message in a traceback.
        try:
            return self.prepare(step)
        except UserError as error:
            return error
