"""k-NN accuracy while a run goes on: quick, and enough to see whether features get better."""

from collections.abc import Callable

import torch
from torch import Tensor

from flexpredict.data.augmentation import PRESETS, draw_crops
from flexpredict.data.sources import ImageSource
from flexpredict.encoder import Encoder
from flexpredict.evaluation.features import pooled
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.randomness import permutation, stream_key

_MOST_IMAGES = 2_500
_HELD_OUT = 0.2
_BATCH = 250


def online_probe(
    source: ImageSource, image_size: tuple[int, int], device: torch.device, seed: int
) -> Callable[[Encoder], float]:
    """A function from an encoder to its k-NN accuracy on images of the labelled `source`.

    Up to 2,500 images, the same every time; a fifth of them are classified by the rest.
    """
    assert source.labels is not None
    chosen = permutation(stream_key(seed, "online probe"), len(source))[:_MOST_IMAGES]
    labels = source.labels[chosen]
    held_out = max(1, round(_HELD_OUT * len(chosen)))

    def read(indices: Tensor) -> Tensor:
        return source.read(indices, draw_crops(PRESETS["none"], indices), image_size)[0].to(device)

    def accuracy(encoder: Encoder) -> float:
        was_training = encoder.training
        encoder.eval()
        features = torch.cat([pooled(encoder, read(indices)).cpu() for indices in chosen.split(_BATCH)])
        encoder.train(was_training)
        return knn_accuracy(features[held_out:], labels[held_out:], features[:held_out], labels[:held_out])

    return accuracy
