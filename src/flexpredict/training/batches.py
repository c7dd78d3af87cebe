"""A rank's training batches, and what reading them yields: positions in a stream, unreadable images, errors."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning_fabric import Fabric

from flexpredict.data.loader import Batch, Batches, starting_places, training_batches
from flexpredict.data.sources.opening import ImageSource, ImageStream, is_stream
from flexpredict.data.sources.streams import Place
from flexpredict.errors import UserError
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.engine import gather
from flexpredict.training.plan import Plan
from flexpredict.training.skipped import SkippedImages


class RankBatches:
    """The batches of this rank, from the step in a checkpoint's `state` to the end of the plan."""

    def __init__(
        self,
        fabric: Fabric,
        plan: Plan,
        source: ImageSource | ImageStream,
        folder: RunFolder,
        state: Mapping[str, Any],
    ) -> None:
        self._fabric, self._plan, self._source, self._folder = fabric, plan, source, folder
        self.waited = 0.0  # seconds, for the last batch
        self.rewind(state)

    def rewind(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint with this state."""
        self.skipped = SkippedImages(self._fabric, self._folder.skipped, self._plan)
        self._last: Batch | None = None
        self._error = ""  # why this rank has no more batches; the others do not know it yet
        self._places = {int(consumer): Place(*place) for consumer, place in state.get("places", {}).items()}
        self._loader = self._open(self._source, state["step"])

    def __next__(self) -> Batch:
        """The next batch; a rank that fails repeats its last one until `settle`, because others wait for it."""
        started = time.perf_counter()
        try:
            if not self._error:
                self._last = next(self._loader)
                self.skipped.add(self._last.skipped)
                if self._last.place is not None:
                    consumer, self._places[consumer] = self._last.place
        except UserError as error:
            if self._fabric.world_size == 1:
                raise
            self._error = str(error)
        self.waited = time.perf_counter() - started
        return self._last or self._blank()

    @contextmanager
    def deaths_explained(self) -> Iterator[None]:
        """If a reading process dies, the error says at which image, wherever in a step the death is noticed."""
        try:
            yield
        except RuntimeError:
            with self._loader.deaths_explained():
                raise

    def settle(self, step: int) -> None:
        """Share errors, unreadable images and positions in a stream with the other ranks."""
        for error in filter(None, gather(self._fabric, self._error)):
            raise UserError(error)
        self.skipped.settle(step)
        for places in gather(self._fabric, self._places):
            for consumer, place in places.items():  # other ranks may hold an older position
                self._places[consumer] = max(place, self._places.get(consumer, place))

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; valid after `settle`."""
        return {"places": self._places}

    def _open(self, source: ImageSource | ImageStream, first_step: int) -> Batches:
        recipe, ranks = self._plan.recipe, self._fabric.world_size
        if is_stream(source):
            # Of exactly these consumers: a checkpoint may be written before each of them has made a batch.
            self._places = starting_places(self._places, ranks * max(1, recipe.workers))
        elif first_step == 0:
            self.skipped.add(source.problems)
        return training_batches(
            source,
            recipe.augmentation,
            self._plan.image_sizes,
            seed=recipe.seed,
            batch_size=recipe.batch_size,
            first_step=first_step,
            last_step=self._plan.steps,
            rank=self._fabric.global_rank,
            world_size=ranks,
            workers=recipe.workers,
            places=self._places,
        )

    def _blank(self) -> Batch:
        share = self._plan.recipe.batch_size // self._fabric.world_size
        images = torch.zeros(share, 3, *self._plan.image_size, dtype=torch.uint8)
        return Batch(images, torch.zeros(share, dtype=torch.int64))
