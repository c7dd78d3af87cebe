"""Intersection over union and accuracy, of all pixels of all test images."""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.evaluation.index_masks import VOID
from flexpredict.sizes import Size

_AT_ONCE = 1 << 24  # scores of pixels in memory


@dataclass(eq=False)
class Confusion:
    """How many pixels of each class were taken for each class."""

    classes: int
    counts: NDArray[np.int64] = field(init=False)  # C C: true class, predicted class

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.classes, self.classes), np.int64)

    def add(self, truth: NDArray[np.uint8], predicted: NDArray[np.uint8]) -> None:
        """H W each; pixels whose truth is VOID are ignored."""
        labeled = truth != VOID
        pairs = truth[labeled].astype(np.int64) * self.classes + predicted[labeled]
        self.counts += np.bincount(pairs, minlength=self.classes**2).reshape(self.counts.shape)

    def iou(self) -> NDArray[np.float64]:
        """Of each class; NaN for a class that is neither there nor predicted."""
        right = self.counts.diagonal()
        union = self.counts.sum(axis=0) + self.counts.sum(axis=1) - right
        return np.where(union > 0, right / np.maximum(union, 1), np.nan)

    def mean_iou(self) -> float:
        """Over the classes that are there or predicted."""
        return float(np.nanmean(self.iou()))

    def accuracy(self) -> float:
        """The share of pixels that are right."""
        return float(self.counts.trace() / self.counts.sum())

    def shares(self) -> NDArray[np.float64]:
        """Of all pixels, those of each class."""
        shares: NDArray[np.float64] = self.counts.sum(axis=1) / self.counts.sum()
        return shares


def winners(scores: Tensor, size: Size) -> NDArray[np.uint8]:
    """The class with the highest score at each pixel, bilinear between the patches. scores: h w C -> H W."""
    best = torch.full(size, -torch.inf, device=scores.device)
    classes = torch.zeros(size, dtype=torch.uint8, device=scores.device)
    at_once = max(1, _AT_ONCE // (size[0] * size[1]))
    for first in range(0, scores.shape[2], at_once):
        some = scores[:, :, first : first + at_once].permute(2, 0, 1)[None].float()
        fine = F.interpolate(some, size=size, mode="bilinear", align_corners=False)[0]
        # Pass by pass: argmax along the first axis takes many times as long.
        for number, plane in enumerate(fine, first):
            classes.masked_fill_(plane > best, number)
            best = torch.maximum(best, plane)
    found: NDArray[np.uint8] = classes.cpu().numpy()
    return found
