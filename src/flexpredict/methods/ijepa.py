"""I-JEPA: predict the features of masked blocks from the visible rest of the image.

The context encoder f_θ sees the context patches; the target encoder f_θ̄, a moving average of it, sees the whole
image and says what the masked patches look like in feature space; the predictor g_φ guesses that from the context.
"""

import copy
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.encoder import Encoder
from flexpredict.predictor import Predictor


class Prediction(NamedTuple):
    """What one pass gives: the loss, and features to judge the health of training by."""

    loss: Tensor
    predictions: Tensor  # (B·C) M Nt d_e
    targets: Tensor  # (B·C) M Nt d_e, layer-normed


class IJEPA(nn.Module):
    """Context encoder, target encoder and predictor."""

    def __init__(self, encoder: Encoder, predictor: Predictor) -> None:
        super().__init__()
        self.context_encoder = encoder
        self.target_encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.predictor = predictor

    def forward(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None = None) -> Prediction:
        """images: B 3 H W; context: B C Nc and targets: B C M Nt, patch indices; keys: B C, noise streams.

        C contexts of one image share one pass of the target encoder.
        """
        wanted = self.target_features(images, targets)
        context, targets = context.flatten(0, 1), targets.flatten(0, 1)
        features = self.context_encoder(images, keep=context)
        grid = self.context_encoder.grid_of(images)
        predictions = self.predictor(features, context, targets, None if keys is None else keys.flatten(), grid)
        loss = F.smooth_l1_loss(predictions.float(), wanted.float())
        return Prediction(loss, predictions, wanted)

    @torch.no_grad()
    def target_features(self, images: Tensor, targets: Tensor) -> Tensor:
        """What is to be predicted: features of the whole image, layer-normed per token, at the targets.

        images: B 3 H W, targets: B C M Nt -> (B·C) M Nt d_e
        """
        features = self.target_encoder(images, read=targets.flatten(1))
        features = F.layer_norm(features.float(), features.shape[-1:])
        return features.view(-1, *targets.shape[2:], features.shape[-1])

    @torch.no_grad()
    def update_target_encoder(self, momentum: float) -> None:
        """θ̄ <- momentum θ̄ + (1 - momentum) θ, for all tensors at once."""
        average = list(_trained(self.target_encoder, self.context_encoder))
        torch._foreach_lerp_(average, list(_trained(self.context_encoder)), 1.0 - momentum)


def _trained(encoder: Encoder, like: Encoder | None = None) -> Iterable[Tensor]:
    """The parameters that are trained in `like` (or in the encoder itself); fixed positions need no average."""
    trained = {name for name, parameter in (like or encoder).named_parameters() if parameter.requires_grad}
    return (parameter for name, parameter in encoder.named_parameters() if name in trained)
