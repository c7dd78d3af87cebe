"""Encoders of BEiT's kind, data2vec-vision among them: timm's Beit on a subset of its patches.

Their tokens have no positions of their own, or learned ones besides; attention gets a bias for the displacement
between two patches (see relative_attention). So a subset of patches is a subset of the pairs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.errors import UserError
from flexpredict.model.encoder import Encoder
from flexpredict.model.relative_attention import attention_bias, biased_block, displacements, resized_table
from flexpredict.model.timm_parts import PatchEmbed, timm
from flexpredict.sizes import Grid


class RelativeEncoder(Encoder):
    """f_θ with relative positions: a table for all blocks together, or one for each.

    Args:
        vit: a timm Beit; its class token and head stay with it.
    """

    def __init__(self, vit: Any) -> None:
        super().__init__(vit, "relative")
        # What timm's VisionTransformer has besides: with it, what is written for that serves here too.
        vit.reg_token, vit.norm_pre = None, nn.Identity()

    @staticmethod
    def check(vit: nn.Module) -> None:
        """Refuse models that are not of this kind."""
        if type(vit) is not timm.models.beit.Beit or type(vit.patch_embed) is not PatchEmbed or not _tables(vit):
            raise UserError(
                f"{type(vit).__name__} is not a vision transformer with tables of relative positions (timm's Beit "
                "with use_rel_pos_bias or use_shared_rel_pos_bias, for example beit_base_patch16_224)."
            )

    def blocks_on(self, grid: Grid, keep: Tensor | None = None) -> Sequence[Callable[[Tensor], Tensor]]:
        device = self.vit.cls_token.device
        patches = torch.arange(grid[0] * grid[1], device=device).unsqueeze(0) if keep is None else keep
        table_row = displacements(grid, patches)
        shared = self._bias(self.vit.rel_pos_bias, grid, table_row)
        return [partial(self._block, block, grid, table_row, shared) for block in self.vit.blocks]

    def resized(self, grid: Grid) -> Encoder:
        other = super().resized(grid)
        for holder in _tables(other.vit):
            old = holder.relative_position_bias_table
            new = resized_table(old.detach(), self.grid, grid).clone()
            holder.relative_position_bias_table = nn.Parameter(new, requires_grad=old.requires_grad)
            # For timm, which keeps the rows of all pairs of its one grid.
            holder.window_size, holder.window_area = grid, grid[0] * grid[1]
            everything = torch.arange(holder.window_area, device=old.device).unsqueeze(0)
            holder.relative_position_index = displacements(grid, everything)[0]
        return other

    def _block(self, block: Any, grid: Grid, table_row: Tensor, shared: Tensor | None, tokens: Tensor) -> Tensor:
        """The bias is made when it is its block's turn: those of all blocks at once would fill the memory."""
        own = self._bias(block.attn, grid, table_row)
        biases = [bias for bias in (shared, own) if bias is not None]
        return biased_block(block, tokens, sum(biases[1:], start=biases[0]))

    def _bias(self, holder: Any, grid: Grid, table_row: Tensor) -> Tensor | None:
        """B heads n n, from the table of a block's attention or of all blocks together, if there is one."""
        table = getattr(holder, "relative_position_bias_table", None)
        return None if table is None else attention_bias(resized_table(table, self.grid, grid), table_row)

    def positions_on(self, grid: Grid) -> tuple[Tensor, Tensor]:
        if self.vit.pos_embed is not None:
            return super().positions_on(grid)
        return self.vit.cls_token.new_zeros(1, self.dim), self.vit.cls_token.new_zeros(grid[0] * grid[1], self.dim)


def _tables(vit: Any) -> list[Any]:
    """The modules of a Beit that have a table."""
    holders = [vit.rel_pos_bias, *(block.attn for block in vit.blocks)]
    return [holder for holder in holders if getattr(holder, "relative_position_bias_table", None) is not None]
