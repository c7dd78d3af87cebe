"""Location share: how much of the variance of patch features only shows where the patch is.

    location share = variance over positions of the mean feature of each position / total variance of patch features

0: the mean feature is the same everywhere; 1: all features of a position are alike, whatever the image shows. Means
of few samples vary by chance, so the plain ratio would be well above 0 even for features that do not depend on their
position. With k positions, n_j samples at position j and n in all, analysis of variance removes that part:

    W = Σ_j Σ_i ‖f_ij - μ_j‖² / (n - k)            variance within positions
    B = Σ_j n_j ‖μ_j - μ‖² / (k - 1)               in expectation W + n0 k / (k - 1) σ_b²
    n0 = (n - Σ_j n_j² / n) / (k - 1)              a typical n_j
    σ_b² = max(0, B - W) / n0 · (k - 1) / k        variance between positions
    share = σ_b² / (σ_b² + W)
"""

import math

import torch
from torch import Tensor

# Share of the mean feature's squared length below which a variance is only rounding of the features.
_ROUNDING = 1e-24


class LocationShare:
    """Adds up batches of patch features in constant memory, in float64.

    Args:
        patches: number of positions.
        dim: length of a feature.
    """

    def __init__(self, patches: int, dim: int) -> None:
        self._counts = torch.zeros(patches, dtype=torch.float64)
        self._sums = torch.zeros(patches, dim, dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)
        # Subtracted from all features first, or a common offset would drown their variance in the sum of squares.
        self._offset: Tensor | None = None

    @torch.no_grad()
    def add(self, features: Tensor, places: Tensor | None = None) -> None:
        """features: B N D of B images; places: B N int64, their positions (by default all in order).

        A position that an image has several times, because masks overlap, is counted once.
        """
        if not features.numel():
            return
        features = in_double(features)
        if self._offset is None:
            self._offset = features.mean(dim=(0, 1))
            self._counts, self._sums, self._squares = (
                total.to(features.device) for total in (self._counts, self._sums, self._squares)
            )
        features = features - self._offset
        if places is None:
            self._counts += len(features)
            self._sums += features.sum(dim=0)
        else:
            ordered, order = places.to(features.device).sort(dim=1, stable=True)
            first = torch.ones_like(ordered, dtype=torch.bool)
            first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
            features = features.gather(1, order.unsqueeze(2).expand_as(features))[first]
            self._counts += torch.bincount(ordered[first], minlength=len(self._counts))
            self._sums.index_add_(0, ordered[first], features)
        self._squares += features.square().sum()

    def value(self) -> float:
        """Between 0 and 1; NaN if fewer than two positions were seen, or none of them twice."""
        seen = self._counts > 0
        counts, sums = self._counts[seen], self._sums[seen]
        samples, positions = float(counts.sum()), len(counts)
        if self._offset is None or positions < 2 or samples <= positions:
            return math.nan
        means = sums / counts[:, None]
        from_mean = means - sums.sum(dim=0) / samples
        within = float(self._squares - counts @ means.square().sum(dim=1)) / (samples - positions)
        within = max(0.0, within)  # rounding
        between = float(counts @ from_mean.square().sum(dim=1)) / (positions - 1)
        typical_count = (samples - float(counts.square().sum()) / samples) / (positions - 1)
        located = max(0.0, between - within) / typical_count * (positions - 1) / positions
        if located + within <= _ROUNDING * float(self._offset.square().sum()):
            return 0.0
        return located / (located + within)


def location_share(features: Tensor, places: Tensor | None = None, patches: int | None = None) -> float:
    """The share of a batch: features B N D, places B N int64 (default: all in order); patches: positions."""
    if patches is None:
        patches = features.shape[1] if places is None else int(places.max()) + 1
    share = LocationShare(patches, features.shape[2])
    share.add(features, places)
    return share.value()


def in_double(features: Tensor) -> Tensor:
    """The features in float64; on the CPU if their device has none."""
    return (features.cpu() if features.device.type == "mps" else features).detach().double()
