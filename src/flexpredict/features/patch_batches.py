"""Features of all patches of a source, batch by batch: too many to be cached."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batches
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.features.encoding import encode_patches, require_finite
from flexpredict.settings.extraction import Extraction


@dataclass(frozen=True, eq=False)
class PatchBatch:
    """Some images that could be read, and those that could not."""

    features: Tensor  # b P D float32, on the device of the encoder
    indices: Tensor  # b int64, of the images in their source
    skipped: list[UnreadableImage]


@torch.no_grad()
def patch_batches(
    encoder: ImageEncoder, source: ImageSource, how: Extraction, device: torch.device | str = "cpu"
) -> Iterator[PatchBatch]:
    """Patch features of all images of a source, in its order."""
    encoder.eval().to(device)
    for batch in evaluation_batches(source, how.size_for(encoder), how.batch_size, workers=how.workers):
        features = torch.empty(0, 0, 0)
        if len(batch.images):
            features = encode_patches(encoder, batch.images.to(device), how)
            require_finite(features.flatten(1), encoder, source.describe, batch.indices)
        yield PatchBatch(features, batch.indices, batch.skipped)
