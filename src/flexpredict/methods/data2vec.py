"""data2vec: at masked positions, predict the features that an encoder of the whole image computes there.

There is no predictor. The student, which is the encoder itself, sees the visible patches and at each hidden position
a masked token ψ_j + m̃; one linear layer reads the prediction off its output. The teacher, a moving average of the
student, sees the whole image; the target is the mean of its last K layers, each layer-normed per token.

Stochastic positions work as in the paper, but in pixel space. The matrix that projects visible patches is here the
patch embedding: c_i = ψ_i + A x_i + b for the pixels x_i of a patch, and m_j = ψ_j + A n_j + m̃ with noise n_j of the
size of x_i. Context and noise share A, so switching the noise off would blind the encoder.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.errors import UserError
from flexpredict.methods.method import AveragingMethod, Prediction
from flexpredict.model.blocks import block_at, pick
from flexpredict.model.building import ModelFacts
from flexpredict.model.encoder import Encoder
from flexpredict.model.linear import Linear
from flexpredict.model.position_noise import noisy_tokens, stochastic_positions
from flexpredict.model.positions import StochasticPositions
from flexpredict.model.predictor import initialize
from flexpredict.randomness import stream_key
from flexpredict.settings.positions import WEIGHT_STD, Positions
from flexpredict.settings.recipe import PredictorSize, Recipe
from flexpredict.sizes import Grid

# As published for images: where the smooth-L1 loss turns from a square into a straight line.
BETA = 2.0


class Data2Vec(AveragingMethod):
    """Student, teacher, and the parts with which the student predicts masked patches.

    Args:
        encoder: the student; the teacher starts as a copy of it.
        settings: the noise on positions; ψ itself is the encoder's.
        layers: K, how many of the teacher's last layers make the target.
        seed: the initial weights of the new parts are a function of it.
        l1: weight of the L1 penalty on A.
    """

    def __init__(
        self, encoder: Encoder, settings: Positions | None = None, layers: int = 1, seed: int = 0, l1: float = 0.0
    ) -> None:
        super().__init__(encoder, l1)
        self.predictor: MaskedPatches = MaskedPatches(encoder, settings or Positions(), seed)
        self.layers = layers

    def forward(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None = None) -> Prediction:
        """images: B 3 H W; context: B C Nc and targets: B C 1 Nt, together all patches; keys: B C."""
        wanted = self.target_features(images, targets)
        context, targets = context.flatten(0, 1), targets.flatten(0, 2)
        features = self._student(images, context, targets, None if keys is None else keys.flatten())
        predictions = self.predictor.output(features).unsqueeze(1)
        loss = F.smooth_l1_loss(predictions.float(), wanted, beta=BETA)
        return self.regularized(loss, predictions, wanted, places=targets.unsqueeze(1))

    def _student(self, images: Tensor, context: Tensor, targets: Tensor, keys: Tensor | None) -> Tensor:
        """Features at the targets: B Nt d_e. Tokens may come in any order, as each has its position."""
        encoder, vit, tokens = self.context_encoder, self.context_encoder.vit, self.predictor
        seen = encoder.embed(images, context)
        prefix, visible = seen.split((vit.num_prefix_tokens, context.shape[1]), dim=1)
        masked = vit.norm_pre(encoder.positions_on(encoder.grid_of(images))[1][targets] + tokens.mask_token)
        visible, masked = noisy_tokens(tokens.stochastic, tokens.noise_on, visible, masked, keys)
        x = torch.cat((prefix, visible, masked.to(visible.dtype)), dim=1)
        for block in vit.blocks[:-1]:
            x = block(x)
        return vit.norm(block_at(vit.blocks[-1], x, slice(seen.shape[1], None)))  # type: ignore[no-any-return]

    @torch.no_grad()
    def target_features(self, images: Tensor, targets: Tensor) -> Tensor:
        """The features to predict: images B 3 H W, targets B C M Nt -> (B·C) M Nt d_e."""
        teacher = self.target_encoder
        x = teacher.embed(images, None)
        total = x.new_zeros((), dtype=torch.float32)
        for index, block in enumerate(teacher.vit.blocks):
            x = block(x)
            if index >= teacher.depth - self.layers:
                total = total + F.layer_norm(x.float(), x.shape[-1:])
        features = pick(total[:, teacher.vit.num_prefix_tokens :] / self.layers, targets.flatten(1))
        return features.view(-1, *targets.shape[2:], features.shape[-1])

    def compiled_parts(self) -> Iterable[nn.Module]:
        """The blocks one by one, because neither pass calls the encoder itself."""
        return chain(self.context_encoder.vit.blocks, self.target_encoder.vit.blocks)


class MaskedPatches(nn.Module):
    """Masked tokens for an encoder, and the linear layer that reads predictions off its output."""

    def __init__(self, encoder: Encoder, settings: Positions, seed: int) -> None:
        super().__init__()
        self.grid: Grid = encoder.grid
        self.noise_on = settings.noise_on
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(seed, "predictor weights"))
            self.output = Linear(encoder.dim, encoder.dim)
            self.mask_token = nn.Parameter(torch.empty(encoder.dim))  # m̃
            self.apply(initialize)
            nn.init.trunc_normal_(self.mask_token, std=WEIGHT_STD)
        projection = encoder.vit.patch_embed.proj
        weight_std = _root_mean_square(projection.weight)
        self.stochastic: StochasticPositions = stochastic_positions(settings, projection, weight_std)
        # In a tuple, so that the encoder is registered in the method alone.
        self._encoder = (encoder,)

    @property
    def positions(self) -> Tensor:
        """ψ, the encoder's own: N d_e."""
        return self._encoder[0].positions_on(self.grid)[1]


def _root_mean_square(weight: Tensor) -> float:
    if weight.is_meta:
        return _new_weight_std(weight[0].numel())  # a model without values, for its sizes only
    return float(weight.detach().float().square().mean().sqrt())


def _new_weight_std(patch_values: int) -> float:
    """Standard deviation of a new patch embedding, which PyTorch draws uniformly up to ±1 / √patch_values."""
    return 1 / math.sqrt(3 * patch_values)


def settle(recipe: Recipe, facts: ModelFacts) -> Recipe:
    """The recipe with data2vec's defaults; raises if it asks for what data2vec cannot do."""
    _refuse_what_it_cannot_do(recipe, facts)
    layers = recipe.targets.layers or max(1, facts.depth // 2)
    values = 3 * (recipe.patch_size or facts.patch_size) ** 2
    return replace(
        recipe,
        targets=replace(recipe.targets, layers=layers),
        positions=recipe.positions.settled(values, _new_weight_std(values)),  # A is the patch embedding
    )


def build(recipe: Recipe, encoder: Encoder) -> Data2Vec:
    """The model of a settled recipe."""
    return Data2Vec(encoder, recipe.positions, recipe.targets.layers or 1, recipe.seed, recipe.positions.l1)


def _refuse_what_it_cannot_do(recipe: Recipe, facts: ModelFacts) -> None:
    if facts.relative:
        raise UserError(
            f"{recipe.model} has relative positions, but masked tokens of method=data2vec need absolute ones. Use "
            "method=ijepa or mae, or a model with absolute positions such as vit_base_patch16_224."
        )
    if recipe.predictor != PredictorSize():
        raise UserError(
            "predictor.dim, predictor.depth or predictor.heads is given, but data2vec has no predictor: its encoder "
            "predicts by itself. Leave them out (null), or use method=ijepa."
        )
    if recipe.masking.kind not in ("blocks", "random"):
        raise UserError(
            f"masking.kind={recipe.masking.kind} leaves some patches neither seen nor predicted and predicts others "
            "twice, but data2vec's encoder must see every position once. Use masking.kind=blocks or random."
        )
    if recipe.masking.keep_targets < 1:
        raise UserError(
            f"masking.keep_targets={recipe.masking.keep_targets:g} leaves positions out, but data2vec's encoder "
            "must see every position once. Leave it out, or use method=ijepa or mae."
        )
    own = "learned" if recipe.positions.kind == "learned" else "sincos"
    if recipe.encoder_positions != own:
        raise UserError(
            f"encoder_positions={recipe.encoder_positions} contradicts positions.kind={recipe.positions.kind}: "
            "data2vec's masked tokens are in the encoder and have its positions. Leave encoder_positions out."
        )
    if recipe.positions.covariance == "conditional":
        raise UserError(
            "positions.covariance=conditional predicts the noise level from what the encoder makes of the context, "
            "and data2vec adds noise before the encoder. Use another covariance, or method=ijepa or mae."
        )
