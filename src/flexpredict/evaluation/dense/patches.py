"""Patch features of whole images beside their maps, batch by batch, as all would not fit into memory."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage, decode, read_size
from flexpredict.data.workers import Computed, WorkerResults, set_current_image
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.dense import DenseFeatures
from flexpredict.evaluation.dense.images import MappedImages, Number
from flexpredict.evaluation.results import encoder_facts
from flexpredict.evaluation.ridge import HELD_OUT
from flexpredict.features.encoding import encode_patches, patch_grid, require_finite
from flexpredict.features.extraction import require_readable
from flexpredict.features.workspace import Workspace
from flexpredict.progress import Counting
from flexpredict.settings.extraction import SizeLike, one_image_size
from flexpredict.sizes import Grid, Size


class EncodedSize:
    """The size at which images are encoded: in their own shape, as nearly as whole patches allow.

    Args:
        image_size: their shorter side; or height x width, to which all are stretched (default: the shorter side that
            the encoder was trained at).
    """

    def __init__(self, image_size: SizeLike | None, encoder: ImageEncoder) -> None:
        pair = one_image_size(image_size)
        stretched = pair is not None and ("x" in str(image_size) or not isinstance(image_size, int | str))
        self._stretched = pair if stretched else None
        self._shorter = min(pair or encoder.image_size)
        self._patch_size = encoder.patch_size
        self.is_usual = not stretched and self._shorter == min(encoder.image_size)

    def of(self, size: Size) -> Size:
        """size: of the image as it is stored."""
        return self._stretched or encoded_size(size, self._shorter, self._patch_size)

    def __str__(self) -> str:
        return "x".join(map(str, self._stretched)) if self._stretched else f"shorter side {self._shorter}"


def encoded_size(size: Size, shorter_side: int, patch_size: Size) -> Size:
    """The size in whole patches that is nearest to an image scaled to this shorter side."""
    scale = shorter_side / min(size)
    height, width = (
        max(1, round(side * scale / patch)) * patch for side, patch in zip(size, patch_size, strict=True)
    )
    return height, width


@dataclass(frozen=True, eq=False)
class PatchMaps(Generic[Number]):
    """Some images of one encoded size."""

    features: Tensor  # b h w D float32, on the device of the encoder
    maps: list[NDArray[Number]]  # b of H W
    indices: list[int]  # b, of the images in their source

    @property
    def grid(self) -> Grid:
        return self.features.shape[1], self.features.shape[2]

    def rows(self) -> Iterator[tuple[int, Tensor, NDArray[Number]]]:
        """Each image: its index, its features (h w D) and its map."""
        return zip(self.indices, self.features, self.maps, strict=True)


@dataclass
class PatchesWithMaps(Generic[Number]):
    """All images of a source with their maps, encoded again in each pass, after which `unreadable` is known."""

    images: MappedImages[Number]
    space: Workspace
    asked: DenseFeatures
    size: EncodedSize
    unreadable: int = field(default=0, init=False)

    @torch.no_grad()
    def __iter__(self) -> Iterator[PatchMaps[Number]]:
        encoder, source, how = self.space.encoder, self.images.source, self.asked
        device = self.space.fabric.device
        read = Computed(partial(_read, self.images, self.size, how.batch_size))
        skipped: list[UnreadableImage] = []
        with Counting(self.space.console, f"patches of {source.name}", "images", len(source)) as counting:
            for batch in WorkerResults(read, range(0, len(source), how.batch_size), how.workers):
                skipped += batch.skipped
                for pixels, maps, indices in batch.of_one_size:
                    features = encode_patches(encoder, pixels.to(device), how)
                    require_finite(features.flatten(1), encoder, source.describe, torch.tensor(indices))
                    grid = patch_grid(encoder, (pixels.shape[2], pixels.shape[3]), features.shape[1])
                    yield PatchMaps(features.unflatten(1, grid), maps, indices)
                    counting.add(len(indices))
        require_readable(source, skipped)
        self.unreadable = len(skipped)

    def counts(self) -> dict[str, Any]:
        """For the protocol, after a pass."""
        images = len(self.images) - self.unreadable
        return {"data": self.images.name, "images": images, "unreadable": self.unreadable}


def open_patches(
    space: Workspace, asked: DenseFeatures, size: EncodedSize, train: MappedImages[Number], test: MappedImages[Number]
) -> tuple[PatchesWithMaps[Number], PatchesWithMaps[Number]]:
    """Training and test images, ready to be encoded; refuses an encoder that cannot take them."""
    space.encoder.to(space.fabric.device).eval()
    patch_grid(space.encoder, size.of(read_size(train.source.encoded(0), train.source.describe(0))))
    return PatchesWithMaps(train, space, asked, size), PatchesWithMaps(test, space, asked, size)


def check_dense(encoder: ImageEncoder, asked: DenseFeatures, train: MappedImages[Any]) -> EncodedSize:
    """Refuse settings that cannot work, before all maps are read."""
    if len(train) < HELD_OUT:
        raise UserError(f"{train.name} has {len(train)} image(s), but at least {HELD_OUT} are needed to fit on.")
    encoder.check_layers(asked.layers)
    return EncodedSize(asked.image_size, encoder)


def dense_protocol(
    known: PatchesWithMaps[Any], tested: PatchesWithMaps[Any], unusual: dict[str, bool], shared: dict[str, str]
) -> dict[str, Any]:
    """Facts with which the protocols of segmentation and depth begin.

    unusual: further settings in words, and whether they are not the default; shared: what `shared_images` found.
    """
    how, size = known.asked, known.size
    settings = {f"last {how.layers} layers": how.layers != 1, str(size): not size.is_usual, **unusual}
    return {
        **encoder_facts(known.space.encoder),
        "layers": how.layers,
        "image_size": str(size),
        "precision": how.precision,
        "settings": ", ".join(words for words, said in settings.items() if said),
        "train": known.counts(),
        "test": tested.counts(),
        **shared,
    }


def patch_of_pixels(size: tuple[int, ...], grid: Grid) -> NDArray[np.int64]:
    """The number of the patch, row by row, that the middle of each pixel lies in: H W."""
    rows, columns = (
        (np.arange(pixels) * 2 + 1) * patches // (2 * pixels) for pixels, patches in zip(size, grid, strict=True)
    )
    return np.asarray(rows[:, None] * grid[1] + columns)


@dataclass(frozen=True)
class _Read(Generic[Number]):
    """A result of a worker, in a class that torch passes on unchanged; a tuple would be turned into tensors."""

    of_one_size: list[tuple[Tensor, list[NDArray[Number]], list[int]]]  # pixels b 3 H W, their maps, their indices
    skipped: list[UnreadableImage]


def _read(images: MappedImages[Number], encoded_as: EncodedSize, batch_size: int, first: int) -> _Read[Number]:
    """Consecutive images, in this or in a worker process."""
    source = images.source
    by_size: dict[Size, list[tuple[Tensor, int]]] = defaultdict(list)
    skipped = []
    for index in range(first, min(first + batch_size, len(source))):
        name = source.describe(index)
        set_current_image(name)
        try:
            encoded = source.encoded(index)
            size = encoded_as.of(read_size(encoded, name))
            by_size[size].append((decode(encoded, name, size, lambda height, width: (0, 0, width, height)), index))
        except UnreadableImage as failure:
            skipped.append(failure)
    set_current_image("")
    groups = []
    for members in by_size.values():
        pixels, indices = zip(*members, strict=True)
        groups.append((torch.stack(pixels), [images.map(index) for index in indices], list(indices)))
    return _Read(groups, skipped)
