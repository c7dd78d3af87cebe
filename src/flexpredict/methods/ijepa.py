"""I-JEPA: predict the features of masked blocks from the visible rest of the image.

The context encoder f_θ sees the context patches; the target encoder f_θ̄, a moving average of it, sees the whole
image and gives the features of the masked patches; the predictor g_φ predicts these from the context.

At half resolution (the paper's Table 8) the targets are cells of 2x2 patches. The target encoder's features are
resized by half (bilinear, which is the mean of the four patches, or their maximum) and then normalized as usual.
Masks are drawn on the grid of cells; the context encoder sees all patches of the context's cells; and a masked token
has the position of its cell's center, counted in patches, so that context and targets share one coordinate system.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from flexpredict.masking import patches_of_cells
from flexpredict.methods.method import AveragingMethod, Prediction
from flexpredict.methods.targets import RunningStandardization, normalize_tokens
from flexpredict.model.blocks import pick
from flexpredict.model.building import ModelFacts
from flexpredict.model.encoder import Encoder
from flexpredict.model.predictor import Predictor, build_predictor, predictor_size
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.targets import Targets
from flexpredict.sizes import Grid


class IJEPA(AveragingMethod):
    """Context encoder, target encoder and predictor."""

    def __init__(
        self, encoder: Encoder, predictor: Predictor, targets: Targets | None = None, l1: float = 0.0
    ) -> None:
        super().__init__(encoder, l1)
        self.predictor: Predictor = predictor
        self.targets = targets or Targets()
        self.cell = self.targets.cell
        self.standardization: RunningStandardization | None = None
        if self.targets.standardize in ("feature", "position"):
            rows, columns = encoder.grid
            places = rows * columns // self.cell**2 if self.targets.standardize == "position" else 1
            self.standardization = RunningStandardization(encoder.dim, places)

    def forward(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None = None) -> Prediction:
        """images: B 3 H W; context: B C Nc and targets: B C M Nt, indices on `mask_grid`; keys: B C, of the noise.

        C contexts of one image share one pass of the target encoder.
        """
        features = self.target_features(images, targets)
        context, targets = context.flatten(0, 1), targets.flatten(0, 1)
        wanted = features if self.standardization is None else self.standardization(features, targets)
        grid = self.context_encoder.grid_of(images)
        if self.cell > 1:
            context = patches_of_cells(context, self.cell, grid)
        seen = self.context_encoder(images, keep=context)
        streams = None if keys is None else keys.flatten()
        predictions = self.predictor(seen, context, targets, streams, grid, self.cell)
        loss = F.smooth_l1_loss(predictions.float(), wanted)
        return self.regularized(loss, predictions, wanted, targets, features)

    @torch.no_grad()
    def target_features(self, images: Tensor, targets: Tensor) -> Tensor:
        """The features to predict: those of the whole image, normalized token by token, at the targets.

        images: B 3 H W, targets: B C M Nt -> (B·C) M Nt d_e
        """
        read, settings = targets.flatten(1), self.targets
        if self.reads_targets_only:
            features = self.target_encoder(images, read=read)
        else:
            features = pick(self._resized(self._whole(images), images), read)
        features = normalize_tokens(features, settings.norm)
        return features.view(-1, *targets.shape[2:], features.shape[-1])

    @property
    def reads_targets_only(self) -> bool:
        """Whether the last block of the target encoder may be computed at the targets only."""
        return self.cell == 1 and self.targets.norm != "tanh" and (self.targets.layers or 1) == 1

    def _whole(self, images: Tensor) -> Tensor:
        """Features of all patches, B N d_e: of the last layer, or the mean of several."""
        encoder, layers = self.target_encoder, self.targets.layers or 1
        if self.targets.norm == "tanh":
            return encoder.last_tokens(images, normed=False)[0][:, encoder.vit.num_prefix_tokens :]
        if layers == 1:
            return encoder(images)  # type: ignore[no-any-return]
        return torch.stack([normalize_tokens(x, "layer") for x in encoder.last_layers(images, layers)]).mean(dim=0)

    def _resized(self, features: Tensor, images: Tensor) -> Tensor:
        if self.cell == 1:
            return features
        pool = F.max_pool2d if self.targets.resolution == "half_max" else F.avg_pool2d
        whole = features.unflatten(1, self.context_encoder.grid_of(images))
        return pool(whole.movedim(3, 1), self.cell).flatten(2).mT

    def mask_grid(self, images: Tensor) -> Grid:
        rows, columns = self.context_encoder.grid_of(images)
        return rows // self.cell, columns // self.cell

    def after_step(self, momentum: float) -> dict[str, float]:
        logged = super().after_step(momentum)
        if self.standardization is not None:
            self.standardization.update()
        return logged

    def forget_pass(self) -> None:
        if self.standardization is not None:
            self.standardization.forget()


def settle(recipe: Recipe, facts: ModelFacts) -> Recipe:
    """The recipe with I-JEPA's defaults: features of the last layer, a predictor of half the encoder's size."""
    return replace(
        recipe,
        targets=replace(recipe.targets, layers=recipe.targets.layers or 1),
        predictor=predictor_size(recipe.predictor, facts),
        positions=recipe.positions.settled(facts.dim),
    )


def build(recipe: Recipe, encoder: Encoder) -> IJEPA:
    """The model of a settled recipe."""
    return IJEPA(encoder, build_predictor(recipe, encoder), recipe.targets, recipe.positions.l1)
