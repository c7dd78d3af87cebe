"""Features of single patches, the layers side by side, and where in the image they are."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batches
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.frozen import FrozenEncoder, Layer
from flexpredict.errors import UserError
from flexpredict.features.extraction import Extraction, require_finite

Grid = tuple[int, int]


@dataclass(frozen=True, eq=False)
class PatchBatch:
    """Some images that could be read, and those that could not."""

    features: Tensor  # b P D float32, on the device of the encoder
    indices: Tensor  # b int64, of the images in their source
    skipped: list[UnreadableImage]


@torch.no_grad()
def patch_batches(
    encoder: FrozenEncoder, source: ImageSource, how: Extraction, device: torch.device | str = "cpu"
) -> Iterator[PatchBatch]:
    """Patch features of all images of a source, in its order."""
    encoder.eval().to(device)
    kind = torch.device(device).type
    size = how.image_size or encoder.image_size
    for batch in evaluation_batches(source, size, how.batch_size, workers=how.workers):
        if not len(batch.images):
            yield PatchBatch(torch.empty(0, 0, 0), batch.indices, batch.skipped)
            continue
        with torch.autocast(kind, torch.bfloat16, enabled=how.precision == "bf16-mixed"):
            layers = encoder.layers(batch.images.to(device), how.layers)
        features = side_by_side(layers, encoder.what).float()
        require_finite(features.flatten(1), encoder, source.describe, batch.indices)
        yield PatchBatch(features, batch.indices, batch.skipped)


def side_by_side(layers: list[Layer], what: str) -> Tensor:
    """Each B P D -> B P (layers·D)."""
    if len({layer.patches.shape[1] for layer in layers}) > 1:
        raise UserError(
            f"The last {len(layers)} layers of {what} have different numbers of patches, which cannot stand side by "
            "side. Use --layers 1."
        )
    return torch.cat([layer.patches for layer in layers], dim=2)


def grid_of(encoder: FrozenEncoder, image_size: tuple[int, int], patches: int) -> Grid | None:
    """Rows and columns of so many patches in an image of this size; None where the patch size does not tell."""
    (height, width), (cell_height, cell_width) = image_size, encoder.patch_size
    # A convolutional network has a cell more where its cells do not fill the image.
    grids = ((height // cell_height, width // cell_width), (-(-height // cell_height), -(-width // cell_width)))
    return next((grid for grid in grids if grid[0] * grid[1] == patches), None)
