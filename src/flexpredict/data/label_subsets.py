"""Stratified subsets of labeled images, such as 1 % of the labels, or a tenth that is held out."""

import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.randomness import permutation, stream_key


def label_subset(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """Indices, ascending, of `fraction` of the images: every class in proportion, and at least once.

    labels: N, each of 0..max present. The subset has max(classes, round(fraction * N)) images, and with the same seed
    a smaller fraction is always contained in a larger one.

    The j-th of n images of a class, in random order, is due when the fraction reaches (j + 1/2) / n, counting from 0;
    the subset is what is due first. This is Sainte-Laguë's rule, which minimizes Σ (a_k - fraction n_k)² / n_k over
    all class counts a_k with that total. Rounding by largest remainders would break nesting.
    """
    if not 0 < fraction <= 1:
        raise UserError(f"fraction={fraction} must be more than 0 and at most 1 (0.01 is 1 %).")
    if labels.ndim != 1 or not len(labels) or labels.is_floating_point() or labels.min() < 0:
        raise UserError(
            f"A subset needs a list of class numbers from 0 up, but has {labels.dtype} labels {tuple(labels.shape)}"
            + (f", the smallest {labels.min().item()}." if len(labels) else ".")
        )
    counts = torch.bincount(labels)
    absent = (counts == 0).nonzero().flatten().tolist()
    if absent:
        raise UserError(
            f"{len(absent)} of {len(counts)} classes have no image, the first is {absent[0]}. Number the classes "
            "without gaps, or add images of them."
        )
    shuffled = permutation(stream_key(seed, "label subset"), len(labels))
    classes = labels.cpu()[shuffled]
    counts = counts.cpu()
    rank = torch.empty_like(shuffled)  # of an image within its class, in the shuffled order
    rank[torch.argsort(classes, stable=True)] = torch.arange(len(classes))
    rank -= (counts.cumsum(0) - counts)[classes]
    due = torch.where(rank == 0, 0.0, (rank.double() + 0.5) / counts[classes])
    size = max(len(counts), round(fraction * len(labels)))
    # The sort is stable, so images that are due at the same time keep their random order.
    return shuffled[torch.argsort(due, stable=True)[:size]].sort().values.to(labels.device)


def all_but(chosen: Tensor, count: int) -> Tensor:
    """The indices below `count` that are not chosen, ascending."""
    rest = torch.ones(count, dtype=torch.bool)
    rest[chosen] = False
    return rest.nonzero()[:, 0]


def strata(labels: Tensor | None, count: int) -> Tensor:
    """Classes numbered without gaps, of `count` images; those without a label are a class of their own."""
    if labels is None:
        return torch.zeros(count, dtype=torch.int64)
    numbers: Tensor = torch.unique(labels, return_inverse=True)[1]
    return numbers
