"""Ridge regression from the features of a patch to numbers such as its row or its depth, computed from sums.

On features standardized by the images it is fitted on, the weights minimize

    mean_i ‖y_i - Wᵀ x_i - b‖² + penalty ‖W‖²            (b is not penalized),

which is scikit-learn's Ridge with alpha = penalty · N. All it needs are the second moments of x and y, so any number
of patches is fitted in constant memory; and the error of given weights on other patches follows from the moments of
those, so that the penalty is chosen without a second pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flexpredict.model.location_share import in_double

HELD_OUT = 5  # every fifth training image is held out to choose the penalty
PENALTIES = tuple(10.0**-exponent for exponent in range(9))  # the strongest first
_CONSTANT = 1e-9  # a deviation below this share of the mean is rounding


class Moments:
    """Sums of z = (x, y) and z zᵀ in float64.

    Args:
        offset: D + T, about the mean of z; moments that are added need the same offset. It is subtracted first,
            because the variance of features with a large mean would be lost to rounding.
    """

    def __init__(self, offset: Tensor) -> None:
        self.offset = in_double(offset)
        self.count = 0.0
        self.total = torch.zeros_like(self.offset)
        self.products = torch.zeros(len(offset), len(offset), dtype=torch.float64, device=self.offset.device)

    def add(self, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> None:
        """features: N D, targets: N T; weights: N, how often each row counts (default: once)."""
        rows = torch.cat((in_double(features), in_double(targets).to(self.offset.device)), dim=1) - self.offset
        weights = torch.ones(len(rows)) if weights is None else weights
        weighted = rows * weights.to(rows)[:, None]
        self.count += float(weights.sum())
        self.total += weighted.sum(dim=0)
        self.products.addmm_(rows.T, weighted)

    def __add__(self, other: "Moments") -> "Moments":
        both = Moments(self.offset)
        both.count = self.count + other.count
        both.total, both.products = self.total + other.total, self.products + other.products
        return both

    def mean(self) -> Tensor:
        return self.offset + self.total / self.count

    def covariance(self) -> Tensor:
        mean = self.total / self.count
        return self.products / self.count - mean[:, None] * mean


@dataclass(frozen=True)
class Readout:
    """A linear map from features to targets."""

    weight: Tensor  # D T float64
    bias: Tensor  # T
    penalty: float

    def __call__(self, features: Tensor) -> Tensor:
        """features: ... D -> ... T."""
        return in_double(features) @ self.weight + self.bias

    def mean_squared_error(self, moments: Moments) -> float:
        """The error on the patches with these moments, summed over the targets."""
        # The residual y - Wᵀ x - b is linear in z.
        residual = torch.cat((-self.weight, torch.eye(len(self.bias)).to(self.weight)))
        mean = moments.mean() @ residual - self.bias
        return float((residual * (moments.covariance() @ residual)).sum() + mean.square().sum())


def ridges(moments: Moments, targets: int, penalties: Sequence[float]) -> list[Readout]:
    """The optimum for each penalty. targets: number of variables, the last ones, to predict from the others."""
    mean, covariance = moments.mean(), moments.covariance()
    deviation = covariance.diagonal()[:-targets].clamp_min(0).sqrt()
    constant = deviation <= _CONSTANT * mean[:-targets].abs()
    scale = torch.where(constant, 0.0, 1 / deviation)
    eigenvalues, vectors = torch.linalg.eigh(scale[:, None] * covariance[:-targets, :-targets] * scale)
    along = vectors.T @ (scale[:, None] * covariance[:-targets, -targets:])
    readouts = []
    for penalty in penalties:
        weight = scale[:, None] * (vectors @ (along / (eigenvalues.clamp_min(0) + penalty)[:, None]))
        readouts.append(Readout(weight, mean[-targets:] - mean[:-targets] @ weight, penalty))
    return readouts


def fit_readout(
    rows: Iterable[tuple[int, Tensor, Tensor, Tensor | None]],
) -> tuple[Readout, Moments, list[dict[str, Any]]]:
    """The read-out, the moments of all rows, and the error of each penalty on held-out images, in one pass.

    rows: for each image its number, features N D, targets N T, and weights N as `Moments.add` takes them.
    """
    parts: tuple[Moments, ...] = ()
    for image, features, targets, weights in rows:
        if not parts:
            offset = torch.cat([in_double(some.mean(dim=0)).to(features.device) for some in (features, targets)])
            parts = Moments(offset), Moments(offset)
        parts[image % HELD_OUT == HELD_OUT - 1].add(features, targets, weights)
    fitted, held_out = parts
    readout, errors = best_readout(fitted, held_out, targets.shape[1])
    candidates = [{"penalty": penalty, "mean_squared_error": error} for penalty, error in errors.items()]
    return readout, fitted + held_out, candidates


def best_readout(fitted: Moments, held_out: Moments, targets: int) -> tuple[Readout, dict[float, float]]:
    """The read-out fitted on both, with the penalty that does best on `held_out`; and the error of each penalty."""
    errors = {readout.penalty: readout.mean_squared_error(held_out) for readout in ridges(fitted, targets, PENALTIES)}
    # On ties the first, which is the strongest.
    penalty = min(errors, key=lambda value: errors[value])
    return ridges(fitted + held_out, targets, (penalty,))[0], errors
