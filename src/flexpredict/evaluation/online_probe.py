"""Probes of an encoder while it is trained: quick enough to be taken often."""

from collections.abc import Callable

import torch
from torch import Tensor

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.sources.opening import ImageSource
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.evaluation.linear import L2_WITHOUT_VALIDATION, linear_probe
from flexpredict.model.encoder import Encoder
from flexpredict.randomness import permutation, stream_key
from flexpredict.runs.metrics import Record
from flexpredict.settings.augmentation import PRESETS

_MOST_IMAGES = 2_500
_HELD_OUT = 0.2
_BATCH = 250
_NEIGHBORS = 20


def online_probe(
    source: ImageSource, image_size: tuple[int, int], device: torch.device, seed: int
) -> Callable[[Encoder], Record]:
    """A function from an encoder to its k-NN and linear accuracy on images of the labeled `source`.

    Up to 2,500 images, the same every time; a fifth of them are classified by the rest. The penalty of the linear
    probe is fixed: choosing it each time would take longer than everything else.
    """
    assert source.labels is not None
    every_label = source.labels
    labeled = (every_label >= 0).nonzero()[:, 0]
    chosen = labeled[permutation(stream_key(seed, "online probe"), len(labeled))[:_MOST_IMAGES]]

    def features_of(encoder: Encoder, indices: Tensor) -> tuple[Tensor, Tensor]:
        images, unreadable = source.read(indices, draw_crops(PRESETS["none"], indices), image_size)
        read = torch.tensor([row for row in range(len(indices)) if row not in unreadable], dtype=torch.int64)
        return ViTEncoder(encoder, "", "").pooled(images[read].to(device)).cpu(), indices[read]

    @torch.no_grad()
    def accuracies(encoder: Encoder) -> Record:
        was_training = encoder.training
        encoder.eval()
        parts = [features_of(encoder, indices) for indices in chosen.split(_BATCH)]
        encoder.train(was_training)
        features = torch.cat([part for part, _ in parts])
        labels = every_label[torch.cat([indices for _, indices in parts])]
        held_out = max(1, round(_HELD_OUT * len(labels)))
        split = features[held_out:], labels[held_out:], features[:held_out], labels[:held_out]
        found = {"knn_accuracy": knn_accuracy(*split, k=min(_NEIGHBORS, len(labels) - held_out))}
        if len(labels[held_out:].unique()) > 1:  # nothing to tell apart otherwise
            found["linear_accuracy"] = linear_probe(*split, l2=L2_WITHOUT_VALIDATION).accuracy
        return found

    return accuracies
