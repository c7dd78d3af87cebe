"""Features of classes that overlap, and what scikit-learn makes of them."""

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from flexpredict.randomness import normal, sample_keys, stream_key


def draw(what: str, rows: int, columns: int) -> Tensor:
    return normal(sample_keys(stream_key(0, what), torch.arange(rows)), columns)


def correlated_classes(
    rows: int, dims: int, classes: int, apart: float = 0.5, what: str = "images"
) -> tuple[Tensor, Tensor]:
    """Overlapping classes whose features are correlated, off-center and of different scales."""
    mixing = torch.linspace(1.0, 0.02, dims)[:, None] * draw("mixing", dims, dims)
    labels = torch.arange(rows) % classes
    features = (draw(what, rows, dims) + apart * draw("classes", classes, dims)[labels]) @ mixing
    return features * torch.logspace(-2, 2, dims) + 3.0, labels


def standardized(features: Tensor) -> Tensor:
    return (features - features.mean(dim=0)) / features.std(dim=0, correction=0)


def sklearn_fit(features: Tensor, labels: Tensor, c: float, tol: float = 1e-9) -> LogisticRegression:
    model = LogisticRegression(C=c, tol=tol, max_iter=5000)
    return model.fit(standardized(features.double()).numpy(), labels.numpy())
