"""Patch features of whole images beside their maps, batch by batch: too many to be kept."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage, decode, read_size
from flexpredict.data.workers import Computed, WorkerResults, set_current_image
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.evaluation.dense.encoded_sizes import EncodedSize, grid_of
from flexpredict.evaluation.dense.mapped_images import MappedImages, Number
from flexpredict.features.encoding import encode_patches, require_finite
from flexpredict.features.extraction import require_readable
from flexpredict.progress import Counting
from flexpredict.settings.extraction import Extraction
from flexpredict.sizes import Grid, Size


@dataclass(frozen=True, eq=False)
class PatchMaps(Generic[Number]):
    """Some images of one encoded size."""

    features: Tensor  # b h w D float32, on the device of the encoder
    maps: list[NDArray[Number]]  # b of H W
    indices: list[int]  # b, of the images in their source


@dataclass
class PatchesWithMaps(Generic[Number]):
    """All images of a source with their maps, encoded each time anew. `unreadable` is known after a pass."""

    images: MappedImages[Number]
    encoder: ImageEncoder
    size: EncodedSize
    how: Extraction
    device: torch.device
    console: Console
    unreadable: int = field(default=0, init=False)

    @torch.no_grad()
    def __iter__(self) -> Iterator[PatchMaps[Number]]:
        encoder, source, step = self.encoder.eval().to(self.device), self.images.source, self.how.batch_size
        read: WorkerResults[_Read[Number]] = WorkerResults(
            Computed(_Reading(self.images, self.size, step)), range(0, len(source), step), self.how.workers
        )
        skipped: list[UnreadableImage] = []
        with Counting(self.console, f"patches of {source.name}", "images", len(source)) as counting:
            for batch in read:
                skipped += batch.skipped
                for pixels, maps, indices in batch.of_one_size:
                    features = encode_patches(encoder, pixels.to(self.device), self.how)
                    require_finite(features.flatten(1), encoder, source.describe, torch.tensor(indices))
                    grid = grid_of(encoder, (pixels.shape[2], pixels.shape[3]))
                    yield PatchMaps(features.unflatten(1, grid), maps, indices)
                    counting.add(len(indices))
        require_readable(source, skipped)
        self.unreadable = len(skipped)

    def counts(self) -> dict[str, Any]:
        """For the protocol, after a pass."""
        images = len(self.images) - self.unreadable
        return {"data": self.images.name, "images": images, "unreadable": self.unreadable}


@dataclass(frozen=True)
class _Read(Generic[Number]):
    of_one_size: list[tuple[Tensor, list[NDArray[Number]], list[int]]]  # pixels b 3 H W, their maps, their indices
    skipped: list[UnreadableImage]


@dataclass(frozen=True)
class _Reading(Generic[Number]):
    """Reads consecutive images, in this or in a worker process."""

    images: MappedImages[Number]
    size: EncodedSize
    batch_size: int

    def __call__(self, first: int) -> _Read[Number]:
        source = self.images.source
        by_size: dict[Size, list[tuple[Tensor, int]]] = defaultdict(list)
        skipped = []
        for index in range(first, min(first + self.batch_size, len(source))):
            name = source.describe(index)
            set_current_image(name)
            try:
                encoded = source.encoded(index)
                size = self.size.of(read_size(encoded, name))
                by_size[size].append((decode(encoded, name, size, _whole), index))
            except UnreadableImage as failure:
                skipped.append(failure)
        set_current_image("")
        groups = []
        for members in by_size.values():
            indices = [index for _, index in members]
            pixels = torch.stack([image for image, _ in members])
            groups.append((pixels, [self.images.map(index) for index in indices], indices))
        return _Read(groups, skipped)


def patch_of_pixels(size: Size, grid: Grid) -> NDArray[np.int64]:
    """The number of the patch, row by row, that the middle of each pixel lies in: H W."""
    rows, columns = (
        (np.arange(pixels) * 2 + 1) * patches // (2 * pixels) for pixels, patches in zip(size, grid, strict=True)
    )
    return np.asarray(rows[:, None] * grid[1] + columns)


def _whole(height: int, width: int) -> tuple[int, int, int, int]:
    return 0, 0, width, height
