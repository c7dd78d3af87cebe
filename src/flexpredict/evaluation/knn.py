"""Classification by the k nearest neighbors in cosine similarity, without any training."""

import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation.checks import check_features, check_finite, check_split

_SIMILARITIES_AT_ONCE = 1 << 26  # 256 MB of float32


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float | None = 0.07,
) -> float:
    """The share of test images, between 0 and 1, that `knn_predict` classifies correctly."""
    check_split(train_features, train_labels, test_features, test_labels)
    predictions = knn_predict(train_features, train_labels, test_features, k=k, temperature=temperature)
    return (predictions == test_labels.to(predictions.device)).double().mean().item()


def knn_predict(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    *,
    k: int = 20,
    temperature: float | None = 0.07,
) -> Tensor:
    """The label (M) of each test image (M D) by the votes of its k nearest training images (N D, N).

    A vote weighs exp(similarity / temperature), as in DINO's protocol; with temperature None all votes weigh the
    same. On ties, the smallest label wins.
    """
    check_features(train_features, train_labels, "training")
    check_finite(test_features, "test")
    if not 1 <= k <= len(train_features):
        raise UserError(f"k={k} must be between 1 and the number of training images, {len(train_features)}.")
    if temperature is not None and not temperature > 0:
        raise UserError(f"temperature={temperature} must be positive, or None for a plain majority vote.")
    values, labels = torch.unique(train_labels.to(train_features.device), return_inverse=True)
    voters = Neighbors(train_features, labels, len(values), k, temperature)
    winners: Tensor = values[voters.votes(test_features).argmax(dim=1)]
    return winners


class Neighbors:
    """Training features whose k nearest vote. features: N D, labels: N in range(classes)."""

    def __init__(self, features: Tensor, labels: Tensor, classes: int, k: int, temperature: float | None) -> None:
        precision = torch.float64 if features.dtype == torch.float64 else torch.float32
        self._features = F.normalize(features.to(precision), dim=1)
        self._labels, self._classes, self._k, self._temperature = labels, classes, k, temperature

    def votes(self, features: Tensor) -> Tensor:
        """The share of the votes that each class gets: M D -> M classes."""
        rows = max(1, _SIMILARITIES_AT_ONCE // len(self._features))
        return torch.cat([self._vote(some) for some in torch.split(features.to(self._features), rows)])

    def _vote(self, features: Tensor) -> Tensor:
        nearest = (F.normalize(features, dim=1) @ self._features.T).topk(self._k, dim=1)  # descending
        weights = torch.ones_like(nearest.values)
        if self._temperature is not None:
            # Relative to the nearest one: the same winner, and no overflow at low temperatures.
            weights = torch.exp((nearest.values - nearest.values[:, :1]) / self._temperature)
        votes = features.new_zeros(len(features), self._classes)
        votes.scatter_add_(1, self._labels[nearest.indices], weights)
        return votes / weights.sum(dim=1, keepdim=True)
