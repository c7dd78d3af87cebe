"""I-JEPA: predict the features of masked blocks from the visible rest of the image.

The context encoder f_θ sees the context patches; the target encoder f_θ̄, a moving average of it, sees the whole
image and says what the masked patches look like in feature space; the predictor g_φ guesses that from the context.

At half resolution (the paper's Table 8) what is predicted are cells of 2x2 patches. The target encoder's features are
resized by half (bilinear, which is the mean of the four patches, or their maximum) and then layer-normed as ever.
Masks are drawn on the grid of cells; the context encoder sees all patches of the context's cells; and a masked token
stands at the centre of its cell, counted in patches, so that context and targets share one measure of place.
"""

import copy
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from flexpredict.masking import patches_of_cells
from flexpredict.methods.method import MaskedTokens, Method, Prediction, update_average
from flexpredict.model.encoder import Encoder
from flexpredict.model.partial_block import pick
from flexpredict.model.positions import Grid
from flexpredict.model.predictor import Predictor

__all__ = ["IJEPA", "Prediction", "TargetResolution", "cell_side"]

TargetResolution = Literal["full", "half_bilinear", "half_max"]


class IJEPA(Method):
    """Context encoder, target encoder and predictor."""

    def __init__(
        self, encoder: Encoder, predictor: Predictor, target_resolution: TargetResolution = "full", l1: float = 0.0
    ) -> None:
        super().__init__(encoder, l1)
        self.target_encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.predictor: Predictor = predictor
        self.target_resolution = target_resolution
        self.cell = cell_side(target_resolution)

    def forward(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None = None) -> Prediction:
        """images: B 3 H W; context: B C Nc and targets: B C M Nt, indices on `mask_grid`; keys: B C, of the noise.

        C contexts of one image share one pass of the target encoder.
        """
        wanted = self.target_features(images, targets)
        context, targets = context.flatten(0, 1), targets.flatten(0, 1)
        grid = self.context_encoder.grid_of(images)
        if self.cell > 1:
            context = patches_of_cells(context, self.cell, grid)
        features = self.context_encoder(images, keep=context)
        streams = None if keys is None else keys.flatten()
        predictions = self.predictor(features, context, targets, streams, grid, self.cell)
        loss = F.smooth_l1_loss(predictions.float(), wanted.float())
        return self.regularised(loss, predictions, wanted, places=targets)

    @torch.no_grad()
    def target_features(self, images: Tensor, targets: Tensor) -> Tensor:
        """What is to be predicted: features of the whole image, layer-normed per token, at the targets.

        images: B 3 H W, targets: B C M Nt -> (B·C) M Nt d_e
        """
        read = targets.flatten(1)
        if self.cell == 1:
            features = self.target_encoder(images, read=read)
        else:
            pool = F.max_pool2d if self.target_resolution == "half_max" else F.avg_pool2d
            whole = self.target_encoder(images).unflatten(1, self.context_encoder.grid_of(images))
            features = pick(pool(whole.movedim(3, 1), self.cell).flatten(2).mT, read)
        features = F.layer_norm(features.float(), features.shape[-1:])
        return features.view(-1, *targets.shape[2:], features.shape[-1])

    def mask_grid(self, images: Tensor) -> Grid:
        rows, columns = self.context_encoder.grid_of(images)
        return rows // self.cell, columns // self.cell

    def after_step(self, momentum: float) -> dict[str, float]:
        self.update_target_encoder(momentum)
        return {"ema_momentum": momentum}

    def update_target_encoder(self, momentum: float) -> None:
        """θ̄ <- momentum θ̄ + (1 - momentum) θ"""
        update_average(self.target_encoder, self.context_encoder, momentum)

    @property
    def masked_tokens(self) -> MaskedTokens:
        return self.predictor

    @property
    def saved_encoder(self) -> tuple[Encoder, str]:
        return self.target_encoder, "target encoder"


def cell_side(resolution: TargetResolution) -> int:
    """Side in patches of what is predicted."""
    return 1 if resolution == "full" else 2
