"""MAE: predict the pixels of the masked patches from the visible ones.

The encoder sees the visible patches (a quarter of all); a light decoder, which is a `Predictor` that outputs pixels,
sees their features and a masked token for each hidden patch, and returns the pixels of the hidden ones. Class and
register tokens take part in both. With stochastic positions A is the decoder's embedding of the encoder's features.
(In the paper noise did not help here: exact pixels need an exact position.)
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from flexpredict.methods.method import Method, Prediction
from flexpredict.model.blocks import pick
from flexpredict.model.building import ModelFacts
from flexpredict.model.encoder import Encoder
from flexpredict.model.predictor import Predictor, build_predictor, predictor_size
from flexpredict.settings.recipe import Recipe


class MAE(Method):
    """Encoder and decoder.

    Args:
        encoder: the one to train, which is also the result: there is no moving average.
        predictor: the decoder, with `patch_values(encoder)` outputs.
        normalize_pixels: predict each patch minus its mean, divided by its standard deviation.
        l1: weight of the L1 penalty on A.
    """

    def __init__(
        self, encoder: Encoder, predictor: Predictor, normalize_pixels: bool = True, l1: float = 0.0
    ) -> None:
        super().__init__(encoder, l1)
        self.predictor: Predictor = predictor
        self.normalize_pixels = normalize_pixels

    def forward(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None = None) -> Prediction:
        """images: B 3 H W; context: B C Nc and targets: B C M Nt, patch indices; keys: B C, noise streams."""
        wanted = self.target_pixels(images, targets)
        context, targets = context.flatten(0, 1), targets.flatten(0, 1)
        # Class and register tokens come before the patches, hence at negative indices.
        first = -self.context_encoder.vit.num_prefix_tokens
        everything = torch.arange(first, context.shape[1], device=context.device).expand(len(context), -1)
        features = self.context_encoder(images, keep=context, read=everything)
        grid = self.context_encoder.grid_of(images)
        predictions = self.predictor(features, context, targets, None if keys is None else keys.flatten(), grid)
        loss = F.mse_loss(predictions.float(), wanted)
        return self.regularized(loss, predictions, wanted, context, features[:, -context.shape[1] :].detach())

    def target_pixels(self, images: Tensor, targets: Tensor) -> Tensor:
        """The pixels to predict, B C M Nt -> (B·C) M Nt (p·q·3): rows of pixels, the colors of each together."""
        (height, width), grid = self.context_encoder.patch_size, self.context_encoder.grid_of(images)
        pixels = images.float().unflatten(3, (grid[1], width)).unflatten(2, (grid[0], height))
        pixels = pixels.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        pixels = pick(pixels, targets.flatten(1))
        if self.normalize_pixels:
            variance, mean = torch.var_mean(pixels, dim=-1, keepdim=True)
            pixels = (pixels - mean) / (variance + 1e-6).sqrt()
        return pixels.view(-1, *targets.shape[2:], pixels.shape[-1])

    @property
    def saved_encoder(self) -> tuple[Encoder, str]:
        return self.context_encoder, "encoder"


def patch_values(encoder: Encoder) -> int:
    """How many numbers a patch has."""
    return int(encoder.vit.patch_embed.proj.weight[0].numel())


def settle(recipe: Recipe, facts: ModelFacts) -> Recipe:
    """The recipe with MAE's defaults: a decoder of half the encoder's size."""
    return replace(
        recipe,
        predictor=predictor_size(recipe.predictor, facts),
        positions=recipe.positions.settled(facts.dim),
    )


def build(recipe: Recipe, encoder: Encoder) -> MAE:
    """The model of a settled recipe."""
    decoder = build_predictor(recipe, encoder, patch_values(encoder))
    return MAE(encoder, decoder, recipe.normalize_pixels, recipe.positions.l1)
