"""Where a token is: sin-cos, learned and stochastic positions (the paper on one page).

A masked-image model predicts the features of masked patches from a visible context. The predictor is told *where*
each masked patch lies, by its position embedding ψ_j. Stochastic positions (StoP) blur that knowledge:

    context token   c_i = ψ_i + A s_i + b              s_i  features of a visible patch, in R^{d_e}
    masked token    m_j = ψ_j + A n_j + m̃              n_j ~ N(0, noise_std² I), in R^{d_e}

so the position of a masked token is Gaussian, ψ̂_j ~ N(ψ_j, noise_std² A Aᵀ) (Eq. 1-3). The *same* matrix A
projects the context and the noise. Shrinking A to be certain of the position would lose the context as well:
at A = 0 nothing of it is left. So the noise cannot be switched off, and A learns which positional features to hide.
(The paper's alternatives, with another matrix in place of A, are in `position_noise`.)
"""

import math

import torch
from torch import Tensor, nn

from flexpredict import randomness
from flexpredict.model.linear import linear
from flexpredict.settings.positions import WEIGHT_STD
from flexpredict.sizes import Grid


def sincos_positions(grid: Grid, dim: int, temperature: float = 10_000.0, cell: int = 1) -> Tensor:
    """Fixed 2-D sine-cosine positions ψ of a grid of any shape: (H·W) dim, row by row.

    Half of the features encode the column, half the row, each as sines and then cosines of dim/4 frequencies.
    If the grid's cells are `cell` patches wide and high, each has the position of its center, counted in patches.
    """
    if dim % 4:
        raise ValueError(f"sin-cos positions need a dimension divisible by 4, not {dim}")
    height, width = grid
    frequencies = temperature ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    rows, columns = (
        (torch.arange(length, dtype=torch.float64)[:, None] * cell + (cell - 1) / 2) * frequencies for length in grid
    )
    row_features = torch.cat((rows.sin(), rows.cos()), dim=1)[:, None, :].expand(height, width, -1)
    column_features = torch.cat((columns.sin(), columns.cos()), dim=1)[None, :, :].expand(height, width, -1)
    return torch.cat((column_features, row_features), dim=2).reshape(height * width, dim).float()


def learned_positions(grid: Grid, dim: int) -> nn.Parameter:
    """One free vector per patch, in place of sines and cosines."""
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(grid[0] * grid[1], dim), std=0.02))


class StochasticPositions(nn.Module):
    """Adds A n to masked tokens while training. A is the weight of `projection`, which also projects the context.

    It owns no parameter. In a predictor that has a projection and a mask token, two lines are new:

        self.stochastic = StochasticPositions(self.projection)        # in __init__
        masked = self.stochastic(masked)                              # in forward; masked: ψ_j + m̃

    Args:
        projection: the linear layer (A, b) that maps context features into the predictor; or a convolution that
            embeds patches, which is a linear layer of their pixels.
        noise_std: standard deviation of the noise n. The paper writes Σ = σ A Aᵀ with σ = 0.25; its released
            code uses 0.25 as the standard deviation, which is what is meant here.
        with_bias: project the noise through b too, as the released code does.
        hold: rescale the noise as A grows or shrinks, so that ‖A n‖ stays what it is for a new A.
        weight_std: standard deviation of the entries of a new A.
    """

    def __init__(
        self,
        projection: nn.Linear | nn.Conv2d,
        noise_std: float = 0.25,
        with_bias: bool = False,
        hold: bool = False,
        weight_std: float = WEIGHT_STD,
    ) -> None:
        super().__init__()
        if not isinstance(projection, nn.Linear | nn.Conv2d):
            raise TypeError(f"A is the weight of a linear layer or a 2-D convolution, not of {projection}")
        if not 0 <= noise_std < math.inf:
            raise ValueError(f"noise_std is a standard deviation and cannot be negative or infinite: {noise_std}")
        self.noise_std = noise_std
        self.with_bias = with_bias
        self.hold = hold
        self._new_norm = weight_std * math.sqrt(projection.weight.numel())
        # In a tuple, so that A stays the projection's alone: registered here too, it would be saved twice.
        self._tied = (projection,)

    @property
    def projection(self) -> nn.Linear | nn.Conv2d:
        """The layer whose weight is A."""
        return self._tied[0]

    @property
    def noise_matrix(self) -> Tensor:
        """The matrix that projects the noise: A itself, d_p d_e."""
        return self.projection.weight.flatten(1)

    def level(self) -> Tensor | float:
        """The standard deviation of n at this moment: noise_std, or rescaled if ‖A n‖ is held."""
        if not self.hold:
            return self.noise_std
        norm: Tensor = self.noise_matrix.detach().float().norm()
        return self.noise_std * self._new_norm / norm.clamp_min(1e-12)

    def forward(self, masked: Tensor, keys: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        """masked: B ... d_p (ψ_j + m̃) -> the same with stochastic positions.

        keys: B int64, one stream of `flexpredict.randomness` per sample, for runs that must be repeatable whatever
        the number of ranks; without keys torch's own generator draws the noise.
        scale: B, a factor of noise_std for each sample.
        """
        bias = self.projection.bias if self.with_bias else None
        if not self.training or self.noise_std == 0.0:
            return masked if bias is None else masked + bias
        matrix = self.noise_matrix
        shape = (*masked.shape[:-1], matrix.shape[1])
        if keys is None:
            noise = torch.randn(shape, device=masked.device)
        else:
            noise = randomness.normal(keys, math.prod(shape[1:])).view(shape)
        noise.mul_(self.level())
        if scale is not None:
            noise = noise * scale.view(-1, *[1] * (noise.ndim - 1))
        # ψ̂_j = ψ_j + A n_j (Eq. 3)
        return masked + linear(noise, matrix, bias)

    def extra_repr(self) -> str:
        return f"noise_std={self.noise_std}, with_bias={self.with_bias}, hold={self.hold}"


# Measures of the noise that, unlike its level, can be compared between widths.


def noise_to_signal(projection: Tensor, positions: Tensor, noise_std: float) -> float:
    """Root-mean-square ‖A n‖ over root-mean-square ‖ψ‖. projection: A d_p d_e, positions: ψ N d_p."""
    noise = noise_std * projection.detach().float().norm()
    return float(noise / positions.detach().float().square().sum(dim=1).mean().sqrt())


@torch.no_grad()
def location_blur(
    projection: Tensor, positions: Tensor, grid: Grid, noise_std: float, key: int = 0, draws: int = 8
) -> tuple[float, float]:
    """How far the noise moves a masked token: (mean distance in patches, share that stay nearest to their position).

    Each stochastic position ψ_j + A n_j is read as the grid position whose ψ_k is nearest to it.
    projection: A d_p d_e, positions: ψ N d_p.
    """
    projection, positions = projection.detach().float(), positions.detach().float()
    count = positions.shape[0]
    keys = randomness.sample_keys(key, torch.arange(draws * count, device=positions.device))
    noise = noise_std * randomness.normal(keys, projection.shape[1])
    moved = positions.repeat(draws, 1) + noise @ projection.T
    nearest = torch.cdist(moved, positions).argmin(dim=1)
    true = torch.arange(count, device=positions.device).repeat(draws)
    rows = (nearest // grid[1] - true // grid[1]).float()
    columns = (nearest % grid[1] - true % grid[1]).float()
    return float(torch.hypot(rows, columns).mean()), float((nearest == true).float().mean())
