"""What is predicted: which features of the target encoder, and how they are normalized.

I-JEPA layer-norms the target encoder's features token by token. That leaves features which hardly differ between
images as large as those that do, and a small model earns most of its loss by predicting what every image has in
common at a place. Standardizing each feature over many images takes that away.
"""

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.settings.targets import Norm

_FADING = 0.9  # what a step leaves of the statistics before it: about ten steps are remembered
_EPSILON = 1e-5


def normalize_tokens(features: Tensor, norm: Norm) -> Tensor:
    """... D -> the same, each token by itself."""
    features = features.float()
    if norm == "layer":
        return F.layer_norm(features, features.shape[-1:])
    return features.tanh() if norm == "tanh" else features


class RunningStandardization(nn.Module):
    """Gives each feature mean 0 and standard deviation 1 over the images of the last steps.

    The statistics are those of the steps before, so that all ranks and all parts of an accumulated batch use the
    same; what a step sees is folded in after it, over all ranks. Before the first step they are 0 and 1.

    Args:
        dim: number of features.
        places: 1, or the number of places where each has a mean of its own.
    """

    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, dim: int, places: int = 1) -> None:
        super().__init__()
        self.places = places
        # Sums that fade, the count among them: their quotients are means whatever came in, be it little or uneven.
        self.register_buffer("count", torch.zeros(places))
        self.register_buffer("total", torch.zeros(places, dim))
        self.register_buffer("squares", torch.zeros(dim))
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, features: Tensor, places: Tensor) -> Tensor:
        """... D at the places ... (indices) -> the same, standardized."""
        where = torch.zeros_like(places) if self.places == 1 else places
        if self.training:
            self._observe(features.flatten(0, -2), where.flatten())
        all_count = self.count.sum()
        everywhere = self.total.sum(dim=0) / all_count.clamp_min(1.0)
        seen = self.count.unsqueeze(1)
        means = torch.where(seen > 0, self.total / seen.clamp_min(1e-12), everywhere)
        # The mean of the squares less what the means account for.
        variance = (self.squares - (seen * means.square()).sum(dim=0)) / all_count.clamp_min(1.0)
        deviation = torch.where(all_count > 0, (variance.clamp_min(0.0) + _EPSILON).sqrt(), 1.0)
        return (features - means[where]) / deviation

    def _observe(self, features: Tensor, places: Tensor) -> None:
        """features: T D, places: T."""
        # Thousands of numbers of both signs: summed in float32, ranks would disagree in the sixth digit.
        precision = torch.float32 if features.device.type == "mps" else torch.float64
        features = features.to(precision)
        count = torch.zeros_like(self.count, dtype=precision).index_add_(0, places, torch.ones_like(features[:, 0]))
        total = torch.zeros_like(self.total, dtype=precision).index_add_(0, places, features)
        self._seen.append((count, total, features.square().sum(dim=0)))

    def forget(self) -> None:
        """After a step that is left out."""
        self._seen = []

    @torch.no_grad()
    def update(self) -> None:
        """After a step: fold in what all parts of the batch, on all ranks, had to show."""
        if not self._seen:
            return
        sums = [torch.stack(parts).sum(dim=0) for parts in zip(*self._seen, strict=True)]
        self._seen = []
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for part in sums:
                torch.distributed.all_reduce(part)
        for kept, new in zip((self.count, self.total, self.squares), sums, strict=True):
            kept.mul_(_FADING).add_(new)
