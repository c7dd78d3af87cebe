"""The noise A n: its variance in each frequency of ψ, its spectrum, and the level at which positions are lost."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.model.positions import sincos_positions
from flexpredict.randomness import normal, sample_keys
from flexpredict.sizes import Grid
from flexpredict.training.health import effective_rank


@dataclass(frozen=True, eq=False)
class Bands:
    """Variances in each frequency of ψ, sine and cosine together: first those of columns, then of rows."""

    wavelengths: Tensor  # F, patches per period
    noise: Tensor  # 2 F, of A n
    signal: Tensor  # 2 F, of ψ over the grid

    @property
    def relative(self) -> Tensor:
        """Noise over signal, 2 F; NaN where ψ does not vary."""
        return torch.where(self.signal > 0, self.noise / self.signal, torch.nan)

    @property
    def shape(self) -> Tensor:
        """The noise over its mean: 1 everywhere if it is flat."""
        return self.noise / self.noise.mean()

    @property
    def high_to_low(self) -> float:
        """Noise in the higher half of the frequencies over noise in the lower half."""
        high, low = self.noise.tensor_split(2, dim=1)
        return float(high.mean() / low.mean())


def frequency_bands(matrix: Tensor, positions: Tensor, grid: Grid, noise_std: float) -> Bands:
    """matrix: d_p d_n, projects the noise; positions: ψ N d_p, which must be sines and cosines."""
    dim = positions.shape[1]
    if dim % 4 or not torch.allclose(positions, sincos_positions(grid, dim).to(positions), atol=1e-4):
        raise UserError(
            "The positions of this run are learned and have no frequencies. The blur figure needs a run with "
            "positions.kind=stochastic or sincos."
        )
    # Sines of falling frequency come first, then their cosines.
    variance = noise_std**2 * matrix.double().square().sum(dim=1)
    frequencies = 10_000.0 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    return Bands(
        2 * torch.pi / frequencies,
        variance.view(2, 2, -1).sum(dim=1),
        positions.double().var(dim=0, correction=0).view(2, 2, -1).sum(dim=1),
    )


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of noise_std² A Aᵀ, the largest first, and how many of them count."""

    eigenvalues: Tensor
    effective_rank: float

    @property
    def ratio_by_chance(self) -> float:
        """Standard deviation of `Bands.high_to_low` if directions of the noise were independent of frequencies.

        For random eigenvectors, a diagonal variance over the mean variance has variance
        2 / (d + 2) · (d / r - 1), where r = (Σλ)² / Σλ². Few directions (a small r) differ a lot by chance.
        """
        dim = len(self.eigenvalues)
        directions = float(self.eigenvalues.sum().square() / self.eigenvalues.square().sum())
        return 2 * math.sqrt(2 / (dim + 2) * max(0.0, dim / directions - 1) / dim)


def spectrum(matrix: Tensor, noise_std: float) -> Spectrum:
    """matrix: d_p d_n."""
    covariance = noise_std**2 * matrix.double() @ matrix.double().T
    return Spectrum(torch.linalg.eigvalsh(covariance).flip(0).clamp_min(0.0), effective_rank(covariance))


def moving_levels(matrix: Tensor, positions: Tensor, key: int = 0, draws: int = 32) -> Tensor:
    """The noise_std from which each draw is nearer to another position than to its own, ascending: (draws·N).

    ψ_j + s A n is nearer to ψ_k than to ψ_j once s > ‖ψ_k - ψ_j‖² / 2 (ψ_k - ψ_j)·A n, so no search is needed. The
    draws are those of `flexpredict.model.positions.location_blur` for the same key.
    """
    count = len(positions)
    keys = sample_keys(key, torch.arange(draws * count))
    moves = (normal(keys, matrix.shape[1]) @ matrix.T).view(draws, count, -1)
    toward = moves @ positions.T - (moves * positions).sum(dim=-1, keepdim=True)  # draws N N
    levels = torch.cdist(positions, positions).square() / (2 * toward)
    leaves = (toward > 0) & ~torch.eye(count, dtype=torch.bool)
    return torch.where(leaves, levels, torch.inf).amin(dim=-1).flatten().sort().values


def as_values(bands: Bands, found: Spectrum) -> dict[str, Any]:
    """The numbers as plain lists, for a file."""
    return {
        "wavelength_patches": bands.wavelengths.tolist(),
        "noise_variance": {"column": bands.noise[0].tolist(), "row": bands.noise[1].tolist()},
        "signal_variance": {"column": bands.signal[0].tolist(), "row": bands.signal[1].tolist()},
        "high_to_low": bands.high_to_low,
        "eigenvalues": found.eigenvalues.tolist(),
        "effective_rank": found.effective_rank,
    }
