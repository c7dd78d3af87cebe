"""Mixup: pairs of images and their labels are blended, by shares that are functions of (seed, step)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.randomness import sample_keys, stream_key, uniform


def own_shares(seed: int, step: int, rows: Tensor, alpha: float) -> Tensor:
    """The share that each image keeps of itself, drawn from Beta(alpha, alpha) for each pair: rows B -> B.

    Rows 2i and 2i + 1 of the global batch are a pair. Images come in random order, so this pair is as random as any
    other, and both are on the same rank.
    """
    return symmetric_beta(sample_keys(stream_key(seed, "mixup", step), rows // 2), alpha).float()


def symmetric_beta(keys: Tensor, alpha: float) -> Tensor:
    """One number of Beta(alpha, alpha), float64, for each key: B... -> B...

    Bailey's polar method makes T = √(ν (U^(-2/ν) - 1)) cos 2πV, of Student's distribution with ν degrees of freedom,
    and (1 + T / √(ν + T²)) / 2 is then Beta(ν/2, ν/2). Written with w = U^(2/ν), so that nothing overflows where
    alpha is small. Exact, and without rejection.
    """
    first, second = uniform(keys, 2).double().unbind(dim=-1)
    w = (1 - first) ** (1 / alpha)
    cosine = torch.cos(2 * math.pi * second)
    return 0.5 + 0.5 * (1 - w).sqrt() * cosine / (w + (1 - w) * cosine**2).sqrt()


def mix_images(images: Tensor, shares: Tensor) -> Tensor:
    """B 3 H W uint8, B -> the same shape, still bytes: encoders normalize them."""
    own = images.float()
    return torch.lerp(_partners(own), own, shares[:, None, None, None]).round_().to(torch.uint8)


def mix_labels(labels: Tensor, shares: Tensor, classes: int) -> Tensor:
    """Labels B and shares B -> the share of each class in each image: B C."""
    own = F.one_hot(labels, classes).float()
    return torch.lerp(_partners(own), own, shares[:, None])


def _partners(rows: Tensor) -> Tensor:
    """Each row replaced by the other of its pair."""
    swapped: Tensor = rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
    return swapped
