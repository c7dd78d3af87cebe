"""How the target encoder's features are normalized before they are predicted.

I-JEPA layer-norms them token by token. That leaves features which hardly differ between images as large as those
that do, and a small model reduces its loss mostly by predicting what all images have in common at a position.
Standardizing each feature over many images removes that shortcut.
"""

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.settings.targets import Norm

_FADING = 0.9  # share of the earlier statistics that a step keeps: about ten steps are remembered
_EPSILON = 1e-5


def normalize_tokens(features: Tensor, norm: Norm) -> Tensor:
    """... D -> ... D, each token by itself."""
    features = features.float()
    if norm == "layer":
        return F.layer_norm(features, features.shape[-1:])
    return features.tanh() if norm == "tanh" else features


class RunningStandardization(nn.Module):
    """Gives each feature mean 0 and standard deviation 1 over the images of the last steps.

    The statistics come from earlier steps, so that all ranks and all parts of an accumulated batch use the same ones;
    those of a step are added after it, over all ranks. Before the first step they are 0 and 1.

    Args:
        dim: number of features.
        places: number of positions with a mean of their own; 1 for one common mean.
    """

    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, dim: int, places: int = 1) -> None:
        super().__init__()
        self.places = places
        # Fading sums, and a fading count: their quotients are means even if few or uneven samples came in.
        self.register_buffer("count", torch.zeros(places))
        self.register_buffer("total", torch.zeros(places, dim))
        self.register_buffer("squares", torch.zeros(dim))
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, features: Tensor, places: Tensor) -> Tensor:
        """Standardize features ... D at places ... (indices)."""
        where = torch.zeros_like(places) if self.places == 1 else places
        if self.training:
            self._observe(features.flatten(0, -2), where.flatten())
        all_count = self.count.sum()
        everywhere = self.total.sum(dim=0) / all_count.clamp_min(1.0)
        seen = self.count.unsqueeze(1)
        means = torch.where(seen > 0, self.total / seen.clamp_min(1e-12), everywhere)
        # The mean of the squares minus the part that the means explain.
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
        """Drop what was seen in a step that is left out."""
        self._seen = []

    @torch.no_grad()
    def update(self) -> None:
        """After a step: add what was seen in all parts of the batch, on all ranks."""
        if not self._seen:
            return
        sums = [torch.stack(parts).sum(dim=0) for parts in zip(*self._seen, strict=True)]
        self._seen = []
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for part in sums:
                torch.distributed.all_reduce(part)
        for kept, new in zip((self.count, self.total, self.squares), sums, strict=True):
            kept.mul_(_FADING).add_(new)
