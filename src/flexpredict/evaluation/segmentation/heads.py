"""Heads that give every patch a score for each class: logistic regression, and nearest neighbors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation.knn import Neighbors
from flexpredict.evaluation.linear import FittedProbe, fit_probe
from flexpredict.evaluation.segmentation import SegmentationSettings
from flexpredict.evaluation.segmentation.labels import Classes
from flexpredict.evaluation.segmentation.patch_labels import LabeledPatches

Head: TypeAlias = Callable[[Tensor], Tensor]  # features N D -> scores N C

_TEMPERATURE = 0.07
_NEVER = -1e30  # the score of a class that no patch was fitted on; finite, as infinities cannot be interpolated


@dataclass(frozen=True, eq=False)
class Heads:
    """What is fitted."""

    by_name: dict[str, Head]
    probe: FittedProbe  # the linear one


def fit_heads(known: LabeledPatches, classes: Classes, how: SegmentationSettings) -> Heads:
    """The linear head, its penalty chosen on held-out images; and k-NN, if it is wanted."""
    found = torch.unique(known.labels)
    if len(found) < 2:
        raise UserError(
            f"All {len(known.labels)} training patches are mostly {classes.names[int(found[0])]}, so there is "
            "nothing to tell apart. Use a larger image_size, or more patches."
        )
    if how.neighbors > len(known.labels):
        raise UserError(
            f"neighbors={how.neighbors}, but there are {len(known.labels)} training patches. Use at most as many, or "
            "neighbors=0 to leave k-NN out."
        )
    probe = fit_probe(known.features, known.labels, l2=how.l2, groups=known.images)

    def linear(features: Tensor) -> Tensor:
        logits = probe.classifier.logits(features)
        scores = logits.new_full((len(logits), len(classes)), _NEVER)
        scores[:, probe.values] = logits
        return scores

    heads: dict[str, Head] = {"linear": linear}
    if how.neighbors:
        voters = Neighbors(known.features, known.labels, len(classes), how.neighbors, _TEMPERATURE)
        heads[f"{how.neighbors}-NN"] = voters.votes
    return Heads(heads, probe)
