"""The interface between the training loop and an objective: forward, after_step, saved_encoder."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from flexpredict.model.encoder import Encoder
from flexpredict.model.positions import StochasticPositions
from flexpredict.sizes import Grid

T = TypeVar("T", bound="AveragingMethod")


class Prediction(NamedTuple):
    """The result of one pass: the loss, and features to judge the health of training by."""

    loss: Tensor
    predictions: Tensor  # (B·C) M Nt and the size of a target
    targets: Tensor  # the same shape
    features: Tensor  # (B·C) ... d_e: those whose collapse would show that training collapsed
    places: Tensor  # (B·C) ...: where on `mask_grid` each of the features was read
    penalty: Tensor | None = None  # the part of the loss that regularizes A, if there is one


class MaskedTokens(Protocol):
    """The part of an objective that makes tokens ψ_j + m̃ of masked patches."""

    grid: Grid

    @property
    def positions(self) -> Tensor:
        """ψ, N d_p."""

    @property
    def mask_token(self) -> Tensor:
        """m̃, d_p."""

    @property
    def stochastic(self) -> StochasticPositions:
        """Their noise, which also holds A."""


class Method(nn.Module, ABC):
    """An objective. It has a `predictor`, which makes the masked tokens, and the encoder that is trained.

    Args:
        encoder: the one to train.
        l1: weight of the L1 penalty on A.
    """

    context_encoder: Encoder
    predictor: nn.Module

    def __init__(self, encoder: Encoder, l1: float = 0.0) -> None:
        super().__init__()
        self.context_encoder = encoder
        self.l1 = l1

    @abstractmethod
    def forward(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None = None) -> Prediction:
        """images: B 3 H W; context: B C Nc and targets: B C M Nt, indices on `mask_grid`; keys: B C, of the noise."""

    @property
    def masked_tokens(self) -> MaskedTokens:
        """The part that holds ψ, m̃ and A."""
        return cast(MaskedTokens, self.predictor)

    @property
    @abstractmethod
    def saved_encoder(self) -> tuple[Encoder, str]:
        """The encoder that a run saves, and what to call it."""

    def after_step(self, momentum: float) -> dict[str, float]:
        """Called after a step of the optimizer. Returns values to log. Default: none."""
        return {}

    def mask_grid(self, images: Tensor) -> Grid:
        """The grid on which masks are drawn. Default: that of the patches."""
        return self.context_encoder.grid_of(images)

    def forget_pass(self) -> None:
        """Drop what a pass kept for `after_step`, because its step is left out. Default: nothing is kept."""

    def compiled_parts(self) -> Iterable[nn.Module]:
        """The networks that are worth compiling. Default: the children."""
        return self.children()

    def trained_blocks(self) -> Iterable[nn.Module]:
        """The transformer blocks that gradients go through, each of which runs as a whole."""
        return chain(self.context_encoder.vit.blocks, getattr(self.predictor, "blocks", ()))

    def regularized(
        self, loss: Tensor, predictions: Tensor, targets: Tensor, places: Tensor, features: Tensor | None = None
    ) -> Prediction:
        """The prediction, with the penalty on A added to its loss; features: to judge by, the targets by default.

        places: of the features, one for each.
        """
        features = targets if features is None else features
        if not self.l1:
            return Prediction(loss, predictions, targets, features, places)
        penalty = self.l1 * self.masked_tokens.stochastic.projection.weight.abs().sum()
        return Prediction(loss + penalty, predictions, targets, features, places, penalty.detach())


class AveragingMethod(Method):
    """An objective whose targets come from a moving average θ̄ of the encoder, which is also its result."""

    def __init__(self, encoder: Encoder, l1: float = 0.0) -> None:
        super().__init__(encoder, l1)
        self.target_encoder = copy.deepcopy(encoder).requires_grad_(False)

    def train(self: T, mode: bool = True) -> T:
        """Targets are not subject to dropout."""
        super().train(mode)
        self.target_encoder.eval()
        return self

    def after_step(self, momentum: float) -> dict[str, float]:
        self.update_target_encoder(momentum)
        return {"ema_momentum": momentum}

    @torch.no_grad()
    def update_target_encoder(self, momentum: float) -> None:
        """θ̄ <- momentum θ̄ + (1 - momentum) θ, for all tensors at once; fixed positions need no average."""
        parameters = dict(self.context_encoder.named_parameters())
        trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
        average = dict(self.target_encoder.named_parameters())
        ours: list[Tensor] = [average[name] for name in trained]
        theirs: list[Tensor] = [parameters[name] for name in trained]
        torch._foreach_lerp_(ours, theirs, 1.0 - momentum)

    @property
    def saved_encoder(self) -> tuple[Encoder, str]:
        return self.target_encoder, "target encoder"
