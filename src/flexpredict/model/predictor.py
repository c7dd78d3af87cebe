"""g_φ: a narrow transformer that predicts the features of masked patches from the context.

For each target block it sees the context tokens c_i = ψ_i + A s_i + b and the block's masked tokens
m_j = ψ_j + A n_j + m̃, and returns predictions for the latter.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.errors import UserError
from flexpredict.model import positions
from flexpredict.model.blocks import block_at
from flexpredict.model.building import ModelFacts, rescale_residual_branches
from flexpredict.model.encoder import Encoder
from flexpredict.model.linear import use_faster_linear
from flexpredict.model.position_noise import noisy_tokens, stochastic_positions
from flexpredict.model.timm_parts import Block, resample_abs_pos_embed
from flexpredict.randomness import stream_key
from flexpredict.settings.positions import WEIGHT_STD, Positions
from flexpredict.settings.recipe import PredictorSize, Recipe
from flexpredict.sizes import Grid


class Predictor(nn.Module):
    """Predicts target features, or anything else of `output_dim` numbers for each target.

    Dimensions: d_e = encoder_dim, d_p = dim; output_dim is d_e by default.
    """

    def __init__(
        self,
        encoder_dim: int,
        grid: Grid,
        dim: int = 384,
        depth: int = 6,
        heads: int = 12,
        settings: Positions | None = None,
        seed: int = 0,
        output_dim: int | None = None,
    ) -> None:
        super().__init__()
        settings = settings or Positions()
        _check_width(dim, heads)
        self.grid = grid
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(seed, "predictor weights"))
            self.projection = nn.Linear(encoder_dim, dim)  # A and b
            self.mask_token = nn.Parameter(torch.empty(dim))  # m̃
            layer_norm = partial(nn.LayerNorm, eps=1e-6)
            self.blocks = nn.Sequential(
                *(Block(dim, heads, qkv_bias=True, norm_layer=layer_norm) for _ in range(depth))
            )
            self.norm = layer_norm(dim)
            self.output = nn.Linear(dim, output_dim or encoder_dim)
            self.apply(initialize)
            nn.init.trunc_normal_(self.mask_token, std=WEIGHT_STD)
            # Last, so that the other initial weights are the same whatever the kind of positions.
            if settings.kind == "learned":
                self.positions = positions.learned_positions(grid, dim)
            else:
                self.register_buffer("positions", positions.sincos_positions(grid, dim), persistent=False)
        rescale_residual_branches(self.blocks)
        use_faster_linear(self)
        self.released = settings.convention == "released"
        self.mask_token.requires_grad_(not self.released)
        self.noise_on = settings.noise_on
        self.stochastic = stochastic_positions(settings, self.projection)

    def forward(
        self,
        features: Tensor,
        context: Tensor,
        targets: Tensor,
        keys: Tensor | None = None,
        grid: Grid | None = None,
        cell: int = 1,
    ) -> Tensor:
        """Predictions at the targets: B M Nt d_e (or output_dim).

        features: B Nc d_e, of the context patches, after those of class and register tokens if there are any;
        context: B Nc and targets: B M Nt, their patch indices; keys: B int64, the random stream of each row's noise;
        grid: of the patches, the predictor's own by default; cell: side in patches of the cells that targets index.
        """
        rows, blocks, length = targets.shape
        grid = grid or self.grid
        where = self._positions(grid)
        visible = self.projection(features)
        # Class and register tokens have no position.
        prefix, visible = visible.split((features.shape[1] - context.shape[1], context.shape[1]), dim=1)
        visible = visible + where[context]
        masked = (where if cell == 1 else self._cell_positions(grid, cell))[targets]
        masked = masked if self.released else masked + self.mask_token
        visible, masked = noisy_tokens(self.stochastic, self.noise_on, visible, masked, keys)
        # The context is projected once and read by each of the M target blocks.
        shared = [tokens.unsqueeze(1).expand(-1, blocks, -1, -1) for tokens in (prefix, visible)]
        x = torch.cat((*shared, masked.to(visible.dtype)), dim=2).flatten(0, 1)
        x = self.blocks[:-1](x)
        x = block_at(self.blocks[-1], x, slice(features.shape[1], None))
        return self.output(self.norm(x)).view(rows, blocks, length, -1)  # type: ignore[no-any-return]

    def _positions(self, grid: Grid) -> Tensor:
        """ψ on this grid; if it is not its own, computed anew (sines and cosines) or interpolated (learned)."""
        if grid == self.grid:
            return self.positions
        if isinstance(self.positions, nn.Parameter):
            own = self.positions[None]
            return resample_abs_pos_embed(own, list(grid), list(self.grid), num_prefix_tokens=0)[0]  # type: ignore[no-any-return]
        return positions.sincos_positions(grid, self.positions.shape[1]).to(self.positions)

    def _cell_positions(self, grid: Grid, cell: int) -> Tensor:
        """ψ of square cells of several patches: sines and cosines of their centers, or means of learned ones."""
        if isinstance(self.positions, nn.Parameter):
            own = self._positions(grid).unflatten(0, grid).movedim(2, 0)
            return F.avg_pool2d(own, cell).flatten(1).T
        coarse = (grid[0] // cell, grid[1] // cell)
        return positions.sincos_positions(coarse, self.positions.shape[1], cell=cell).to(self.positions)


def predictor_size(size: PredictorSize, facts: ModelFacts) -> PredictorSize:
    """The size with defaults filled in: half the encoder's width and depth."""
    dim = size.dim or min(384, max(4 * facts.heads, facts.dim // 2 // 4 * 4))
    heads = size.heads or max(h for h in range(1, facts.heads + 1) if dim % h == 0)
    return replace(size, dim=dim, depth=size.depth or max(1, min(12, facts.depth // 2)), heads=heads)


def build_predictor(recipe: Recipe, encoder: Encoder, output_dim: int | None = None) -> Predictor:
    """The predictor of a settled recipe."""
    size = recipe.predictor
    assert size.dim and size.depth and size.heads
    return Predictor(
        encoder.dim, encoder.grid, size.dim, size.depth, size.heads, recipe.positions, recipe.seed, output_dim
    )


def initialize(module: nn.Module) -> None:
    """New weights of a linear layer, from torch's generator."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=WEIGHT_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _check_width(dim: int, heads: int) -> None:
    if dim % 4 or dim % heads:
        near = heads * 4 * max(1, dim // (heads * 4))
        raise UserError(
            f"predictor.dim={dim} with {heads} heads cannot be built: it must be a multiple of 4 (sin-cos positions) "
            f"and of the number of heads. Try predictor.dim={near}."
        )
