"""What a recipe says about positions, and the arms of the paper besides StoP itself: other covariances, other tokens.

Each covariance is another matrix N in the place of A: ψ̂_j = ψ_j + N n_j with n_j ~ N(0, noise_std² I). All of them
start at one noise-to-signal ratio, so a noise_std means the same for each; untied and conditional start as tied does
to the last bit, diagonal as fixed does.
"""

import math
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor, nn

from flexpredict import randomness
from flexpredict.errors import UserError
from flexpredict.model.positions import WEIGHT_STD, StochasticPositions, noise_std_at_start

Covariance = Literal["tied", "fixed", "untied", "diagonal", "conditional"]
NoiseOn = Literal["masked", "context", "both"]
_CONTEXT_STREAM = randomness.stream_key(0, "noise on context tokens")


@dataclass
class Positions:
    """Where the tokens are.

    Args:
        kind: "stochastic" (StoP), "sincos" (I-JEPA's) or "learned".
        noise_std: standard deviation of the noise n; 0.25 unless noise_to_signal is given. 0 is sin-cos exactly.
        noise_to_signal: the noise level as ‖A n‖ / ‖ψ‖ at the start, comparable between widths (paper, ViT-B: 0.2).
        convention: "paper": m̃ is added and b is not; "released": the authors' code, b is added and m̃ is not (by
            default the paper's, or that of the checkpoint a run starts from).
        covariance: of the noise. "tied": A Aᵀ, with the A of the context (paper); "fixed": the identity; "untied": a
            learned matrix of its own, which nothing keeps from shrinking; "diagonal": a learned diagonal of its own;
            "conditional": tied, with a level for each image, between half and twice noise_std, that is predicted from
            its context. All start at the same ‖noise‖ / ‖ψ‖.
        noise_on: which tokens have noise on their positions: "masked" (paper), "context" or "both".
        hold: keep ‖A n‖ / ‖ψ‖ where it starts, whatever becomes of ‖A‖ (paper: it is left to fall with ‖A‖).
        l1: weight of an L1 penalty on A, the sum of |A_ij|, for every kind of positions.
        schedule: the noise level over the run: "constant" (paper), or "linear" or "cosine" to final_level.
        final_level: noise level at the end, as a share of that at the start.
    """

    kind: Literal["stochastic", "sincos", "learned"] = "stochastic"
    noise_std: float | None = None
    noise_to_signal: float | None = None
    convention: Literal["paper", "released"] | None = None
    covariance: Covariance = "tied"
    noise_on: NoiseOn = "masked"
    hold: bool = False
    l1: float = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_level: float = 1.0

    def level(self, in_features: int, weight_std: float = WEIGHT_STD) -> float:
        """The noise_std that these settings mean for a new A of so many columns; raises where they mean nothing."""
        self._check()
        if self.kind != "stochastic":
            return 0.0
        if self.noise_to_signal is not None:
            return noise_std_at_start(self.noise_to_signal, in_features, weight_std)
        return 0.25 if self.noise_std is None else self.noise_std

    def _check(self) -> None:
        for name in ("noise_std", "noise_to_signal", "l1", "final_level"):
            value = getattr(self, name) or 0.0
            if not 0.0 <= value < math.inf:
                what = {"l1": "a penalty"}.get(name, "a noise level")
                raise UserError(f"positions.{name} is {value:g}, but {what} cannot be negative or without end.")
        if self.kind != "stochastic":
            self._refuse(
                f"positions.kind={self.kind} has no noise. Leave them out, or use positions.kind=stochastic.",
                *("covariance", "noise_on", "hold", "schedule", "final_level"),
            )
            return
        if self.noise_std is not None and self.noise_to_signal is not None:
            raise UserError(
                "The noise level is given twice, as positions.noise_std and as positions.noise_to_signal. Give one."
            )
        if self.covariance in ("untied", "diagonal", "conditional") and 0.0 in (self.noise_std, self.noise_to_signal):
            raise UserError(
                f"positions.covariance={self.covariance} learns the noise, and at noise level 0 there is none. "
                "Give a level, or leave positions.covariance out."
            )
        if self.convention == "released":
            self._refuse(
                "positions.convention=released is the authors' code as it is, with noise through A on masked tokens. "
                "Leave them out, or use positions.convention=paper.",
                *("covariance", "noise_on", "hold"),
            )
        if self.covariance != "tied":
            self._refuse(
                "only the tied covariance shrinks with A. Leave it out, or use positions.covariance=tied.", "hold"
            )
        if self.schedule == "constant":
            self._refuse(
                "positions.schedule=constant keeps the noise level as it is. Leave it out, or use "
                "positions.schedule=linear or cosine.",
                "final_level",
            )

    def _refuse(self, reason: str, *names: str) -> None:
        usual = {field.name: field.default for field in fields(self)}
        changed = [f"positions.{name}={getattr(self, name)}" for name in names if getattr(self, name) != usual[name]]
        if changed:
            raise UserError(f"{' and '.join(changed)} does not work: {reason}")


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
    """Noise through a learned matrix of its own. Nothing is lost when it shrinks, so it does."""

    def __init__(self, projection: nn.Linear | nn.Conv2d, noise_std: float) -> None:
        super().__init__(projection, noise_std)
        self.matrix = nn.Parameter(projection.weight.detach().flatten(1).clone())

    @property
    def noise_matrix(self) -> Tensor:
        return self.matrix


class DiagonalNoise(StochasticPositions):
    """Independent noise on each positional feature: of one fixed level (Σ = s² I), or each of a learned one.

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
    """Noise through A at a level of each image's own, predicted from the mean of its context tokens.

    The level stays between half and twice noise_std: without bounds the model would be rid of the noise by predicting
    none, which is what the tied A is there to prevent. It starts at noise_std for every image.
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
