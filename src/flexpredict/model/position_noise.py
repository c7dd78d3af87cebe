"""The paper's alternatives to StoP: other covariances, and noise on other tokens.

Each covariance is another matrix N in place of A: ψ̂_j = ψ_j + N n_j with n_j ~ N(0, noise_std² I). All of them start
at one noise-to-signal ratio, so a noise_std means the same for each; untied and conditional start exactly as tied
does, and diagonal exactly as fixed does.
"""

import math

import torch
from torch import Tensor, nn

from flexpredict import randomness
from flexpredict.model.positions import StochasticPositions
from flexpredict.settings.positions import WEIGHT_STD, NoiseOn, Positions

_CONTEXT_STREAM = randomness.stream_key(0, "noise on context tokens")


def stochastic_positions(
    settings: Positions, projection: nn.Linear | nn.Conv2d, weight_std: float = WEIGHT_STD
) -> StochasticPositions:
    """The module that these settings ask for. weight_std: of the entries of A, which is new."""
    noise_std = settings.level(projection.weight[0].numel(), weight_std)
    if settings.covariance == "tied":
        return StochasticPositions(
            projection, noise_std, settings.convention == "released", settings.hold, weight_std
        )
    if settings.covariance == "untied":
        return UntiedNoise(projection, noise_std)
    if settings.covariance == "conditional":
        return ConditionalNoise(projection, noise_std)
    return DiagonalNoise(projection, noise_std, weight_std, learned=settings.covariance == "diagonal")


def noisy_tokens(
    stochastic: StochasticPositions, noise_on: NoiseOn, context: Tensor, masked: Tensor, keys: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Context tokens B N D and masked tokens B ... D, with noise on those that should have it; keys: B int64."""
    scale = stochastic.scale(context) if isinstance(stochastic, ConditionalNoise) else None
    if noise_on != "context":
        masked = stochastic(masked, keys, scale)
    if noise_on != "masked":
        # Streams of their own, so that masked tokens have the same noise whether context tokens have some or not.
        streams = None if keys is None else randomness.sample_keys(_CONTEXT_STREAM, keys)
        context = stochastic(context, streams, scale)
    return context, masked


class UntiedNoise(StochasticPositions):
    """Noise through a learned matrix of its own. Shrinking it costs nothing, so training does that."""

    def __init__(self, projection: nn.Linear | nn.Conv2d, noise_std: float) -> None:
        super().__init__(projection, noise_std)
        self.matrix = nn.Parameter(projection.weight.detach().flatten(1).clone())

    @property
    def noise_matrix(self) -> Tensor:
        return self.matrix


class DiagonalNoise(StochasticPositions):
    """Independent noise on each positional feature: of one fixed level (Σ = s² I), or of a learned level each.

    s is noise_std · weight_std · √d_e, the level per feature of A n when A is new.
    """

    diagonal: Tensor

    def __init__(
        self,
        projection: nn.Linear | nn.Conv2d,
        noise_std: float,
        weight_std: float = WEIGHT_STD,
        learned: bool = True,
    ) -> None:
        super().__init__(projection, noise_std)
        rows, columns = projection.weight.flatten(1).shape
        diagonal = torch.full((rows,), weight_std * math.sqrt(columns))
        if learned:
            self.diagonal = nn.Parameter(diagonal)
        else:
            self.register_buffer("diagonal", diagonal, persistent=False)

    @property
    def noise_matrix(self) -> Tensor:
        return self.diagonal.diag()


class ConditionalNoise(StochasticPositions):
    """Noise through A at a level of its own for each image, predicted from the mean of its context tokens.

    The level stays between half and twice noise_std: without bounds the model could avoid the noise by
    predicting none, which is what the tied A is meant to prevent. It starts at noise_std for every image.
    """

    last_scale: Tensor

    def __init__(self, projection: nn.Linear | nn.Conv2d, noise_std: float) -> None:
        super().__init__(projection, noise_std)
        self.weight = nn.Parameter(torch.zeros(projection.weight.shape[0]))
        self.bias = nn.Parameter(torch.zeros(()))
        self.register_buffer("last_scale", torch.ones(()), persistent=False)  # for the log

    def scale(self, context: Tensor) -> Tensor:
        """Each image's factor of noise_std: context tokens B N d_p -> B."""
        scale = torch.exp2(torch.tanh(context.float().mean(dim=1) @ self.weight + self.bias))
        self.last_scale.copy_(scale.detach().mean())
        return scale
