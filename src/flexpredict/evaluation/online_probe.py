"""Probes of an encoder during training, quick enough to run often."""

from collections.abc import Callable

import torch
from torch import Tensor

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.label_subsets import all_but, label_subset, strata
from flexpredict.data.sources.opening import ImageSource
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.evaluation.linear import L2_WITHOUT_VALIDATION, linear_probe
from flexpredict.model.encoder import Encoder
from flexpredict.randomness import permutation, stream_key
from flexpredict.runs.metrics import Record
from flexpredict.settings.augmentation import PRESETS

_MOST_IMAGES = 2_500
_MOST_CLASSES = 100  # with more, each would have too few images
_HELD_OUT = 0.2
_BATCH = 250
_NEIGHBORS = 20


def online_probe(
    source: ImageSource, image_size: tuple[int, int], device: torch.device, seed: int
) -> Callable[[Encoder], Record]:
    """A function from an encoder to its k-NN and linear accuracy on images of the labeled `source`.

    Up to 2,500 images of up to 100 classes, the same every time; a fifth of them are classified by means of the
    rest. The penalty of the linear probe is fixed: choosing it each time would take longer than everything else.
    """
    assert source.labels is not None
    every_label = source.labels
    chosen = _chosen(every_label, source.name, seed)

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
        if not len(labels):  # no image could be read
            return {}
        known = label_subset(strata(labels, len(labels)), 1 - _HELD_OUT, seed)  # some of every class
        asked = all_but(known, len(labels))
        if not len(asked):  # too few images could be read to hold some out
            return {}
        split = features[known], labels[known], features[asked], labels[asked]
        found = {"knn_accuracy": knn_accuracy(*split, k=min(_NEIGHBORS, len(known)))}
        if len(labels[known].unique()) > 1:  # nothing to tell apart otherwise
            found["linear_accuracy"] = linear_probe(*split, l2=L2_WITHOUT_VALIDATION).accuracy
        return found

    return accuracies


def _chosen(labels: Tensor, name: str, seed: int) -> Tensor:
    """Indices of the images to classify: classes in proportion, each of at least two images."""
    labeled = (labels >= 0).nonzero()[:, 0]
    classes, counts = labels[labeled].unique(return_counts=True)
    classes = classes[counts > 1]  # one to learn from, one to classify
    if len(classes) < 2:
        raise UserError(
            f"Probing during training needs at least two classes with two images each, but {name} has "
            f"{len(classes)}. Name other images with probe_data, or leave out probe_every."
        )
    classes = classes[permutation(stream_key(seed, "classes of the online probe"), len(classes))[:_MOST_CLASSES]]
    labeled = labeled[torch.isin(labels[labeled], classes)]
    share = min(1.0, _MOST_IMAGES / len(labeled))
    return labeled[label_subset(strata(labels[labeled], len(labeled)), share, seed)]
