"""g_φ: a narrow transformer that predicts the features of masked patches from the context.

For each target block it sees the context tokens c_i = ψ_i + A s_i + b and the block's masked tokens
m_j = ψ_j + A n_j + m̃, and returns what it makes of the latter.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from flexpredict import positions
from flexpredict.encoder import rescale_residual_branches
from flexpredict.errors import UserError
from flexpredict.partial_block import block_at
from flexpredict.randomness import stream_key
from flexpredict.timm_parts import Block, resample_abs_pos_embed

WEIGHT_STD = 0.02


@dataclass
class Positions:
    """Where the tokens are.

    Args:
        kind: "stochastic" (StoP), "sincos" (I-JEPA's) or "learned".
        noise_std: standard deviation of the noise n; 0.25 unless noise_to_signal is given. 0 is sin-cos exactly.
        noise_to_signal: the noise level as ‖A n‖ / ‖ψ‖ at the start, comparable between widths (paper, ViT-B: 0.2).
        convention: "paper": m̃ is added and b is not; "released": the authors' code, b is added and m̃ is not.
    """

    kind: Literal["stochastic", "sincos", "learned"] = "stochastic"
    noise_std: float | None = None
    noise_to_signal: float | None = None
    convention: Literal["paper", "released"] = "paper"

    def level(self, encoder_dim: int) -> float:
        """The noise_std that these settings mean."""
        if self.kind != "stochastic":
            return 0.0
        if self.noise_std is not None and self.noise_to_signal is not None:
            raise UserError(
                "The noise level is given twice, as positions.noise_std and as positions.noise_to_signal. Give one."
            )
        for name in ("noise_std", "noise_to_signal"):
            if (getattr(self, name) or 0.0) < 0.0:
                raise UserError(f"positions.{name} is {getattr(self, name)}, but a noise level cannot be negative.")
        if self.noise_to_signal is not None:
            return positions.noise_std_at_start(self.noise_to_signal, encoder_dim, WEIGHT_STD)
        return 0.25 if self.noise_std is None else self.noise_std


class Predictor(nn.Module):
    """Predicts target features. Dimensions: d_e = encoder_dim, d_p = dim."""

    def __init__(
        self,
        encoder_dim: int,
        grid: positions.Grid,
        dim: int = 384,
        depth: int = 6,
        heads: int = 12,
        settings: Positions | None = None,
        seed: int = 0,
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
            self.output = nn.Linear(dim, encoder_dim)
            self.apply(_initialise)
            nn.init.trunc_normal_(self.mask_token, std=WEIGHT_STD)
            # Last, so that the other initial weights are the same whatever the kind of positions.
            if settings.kind == "learned":
                self.positions = positions.learned_positions(grid, dim)
            else:
                self.register_buffer("positions", positions.sincos_positions(grid, dim), persistent=False)
        rescale_residual_branches(self.blocks)
        self.released = settings.convention == "released"
        self.mask_token.requires_grad_(not self.released)
        self.stochastic = positions.StochasticPositions(
            self.projection, settings.level(encoder_dim), with_bias=self.released
        )

    def forward(
        self,
        features: Tensor,
        context: Tensor,
        targets: Tensor,
        keys: Tensor | None = None,
        grid: positions.Grid | None = None,
    ) -> Tensor:
        """Predicted features of the targets: B M Nt d_e.

        features: B Nc d_e, of the context patches; context: B Nc and targets: B M Nt, their patch indices;
        keys: B int64, the random stream of each row's noise; grid: of the patches, the predictor's own by default.
        """
        rows, blocks, length = targets.shape
        where = self._positions(grid or self.grid)
        visible = self.projection(features) + where[context]
        masked = where[targets] if self.released else where[targets] + self.mask_token
        masked = self.stochastic(masked, keys).to(visible.dtype)
        # The context is projected once and read by each of the M target blocks.
        visible = visible.unsqueeze(1).expand(-1, blocks, -1, -1)
        x = torch.cat((visible, masked), dim=2).flatten(0, 1)
        x = self.blocks[:-1](x)
        x = block_at(self.blocks[-1], x, slice(context.shape[1], None))
        return self.output(self.norm(x)).view(rows, blocks, length, -1)  # type: ignore[no-any-return]

    def _positions(self, grid: positions.Grid) -> Tensor:
        """For another grid than its own, sines and cosines are computed anew and learned ones interpolated."""
        if grid == self.grid:
            return self.positions
        if isinstance(self.positions, nn.Parameter):
            own = self.positions[None]
            return resample_abs_pos_embed(own, list(grid), list(self.grid), num_prefix_tokens=0)[0]  # type: ignore[no-any-return]
        return positions.sincos_positions(grid, self.positions.shape[1]).to(self.positions)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=WEIGHT_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _check_width(dim: int, heads: int) -> None:
    if dim % 4 or dim % heads:
        near = heads * 4 * max(1, dim // (heads * 4))
        raise UserError(
            f"A predictor of dim {dim} with {heads} heads cannot be built: the dim must be a multiple of 4 "
            f"(sin-cos positions) and of the number of heads. Try predictor.dim {near}."
        )
