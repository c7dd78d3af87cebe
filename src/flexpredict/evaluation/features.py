"""Frozen features of images: patches of the last layers, average-pooled."""

import torch
from torch import Tensor

from flexpredict.data.loader import evaluation_batches
from flexpredict.data.pixels import normalise
from flexpredict.data.sources import ImageSource
from flexpredict.encoder import Encoder


@torch.no_grad()
def pooled(encoder: Encoder, images: Tensor, layers: int = 1) -> Tensor:
    """Mean over the patches, of the last `layers` layers side by side. images: B 3 H W uint8 -> B (layers·D)."""
    features = encoder.last_layers(normalise(images), layers)
    return torch.cat([layer.float().mean(dim=1) for layer in features], dim=1)


def extract_features(
    encoder: Encoder,
    source: ImageSource,
    image_size: tuple[int, int],
    *,
    layers: int = 1,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Features of all images of a source, in its order: N (layers·D), on the CPU."""
    was_training = encoder.training
    encoder = encoder.eval().to(device)
    batches = evaluation_batches(source, image_size, batch_size)
    features = torch.cat([pooled(encoder, images.to(device), layers).cpu() for images, _ in batches])
    encoder.train(was_training)
    return features
