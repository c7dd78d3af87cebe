"""Encoders of BEiT's kind, data2vec-vision among them: timm's Beit on a subset of its patches, and on any grid.

Attention gets a learned bias for the displacement between two patches; tokens have no positions of their own, or
learned ones in addition. So a subset of patches is a subset of the pairs. The biases are in a table: a row for
each displacement (rows times columns of patches) and three more, for the class token to patches, patches to the class
token, and it to itself; a column for each head.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.errors import UserError
from flexpredict.model.encoder import Encoder
from flexpredict.model.linear import linear
from flexpredict.model.timm_parts import PatchEmbed, timm
from flexpredict.sizes import Grid


class RelativeEncoder(Encoder):
    """f_θ with relative positions: a table for all blocks together, or one for each.

    Args:
        vit: a timm Beit; its class token and head stay with it.
    """

    def __init__(self, vit: Any) -> None:
        super().__init__(vit, "relative")
        # Attributes of timm's VisionTransformer, so that code written for it works here too.
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
        """Run one block. Its bias is made only now: those of all blocks at once would fill the memory."""
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


def displacements(grid: Grid, patches: Tensor) -> Tensor:
    """Row of the table for each pair of tokens, the class token first. patches: B N indices -> B (1 + N) (1 + N)."""
    height, width = 2 * grid[0] - 1, 2 * grid[1] - 1
    # Rows are (Δrow, Δcolumn) in raster order, so one number for each patch makes them differences.
    place = patches // grid[1] * width + patches % grid[1]
    between = place.unsqueeze(2) - place.unsqueeze(1) + height * width // 2
    table_row = F.pad(between, (1, 0, 1, 0))
    table_row[:, 0, :] = height * width
    table_row[:, :, 0] = height * width + 1
    table_row[:, 0, 0] = height * width + 2
    return table_row


def attention_bias(table: Tensor, table_row: Tensor) -> Tensor:
    """table: R heads, table_row: B n n -> B heads n n."""
    return F.embedding(table_row, table).movedim(-1, 1).contiguous()


def biased_block(block: Any, tokens: Tensor, bias: Tensor) -> Tensor:
    """A block of timm's Beit with this bias in place of its whole grid's. tokens: B n D, bias: B heads n n."""
    x = _attention(block.attn, block.norm1(tokens), bias)
    x = tokens + block.drop_path1(x if block.gamma_1 is None else block.gamma_1 * x)
    y = block.mlp(block.norm2(x))
    return x + block.drop_path2(y if block.gamma_2 is None else block.gamma_2 * y)  # type: ignore[no-any-return]


# Not compiled: its ratios are found step by step, for grids that vary.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def resized_table(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """The table for another grid, interpolated as BEiT does it (see `_places`); the class token's rows stay."""
    if old == new:
        return table
    rows, columns = (_interpolation(*sides).to(table) for sides in zip(old, new, strict=True))
    patches = table[:-3].unflatten(0, (2 * old[0] - 1, 2 * old[1] - 1))
    patches = torch.einsum("yi,xj,ijh->yxh", rows, columns, patches)
    return torch.cat((patches.flatten(0, 1), table[-3:]))


def _attention(attention: Any, tokens: Tensor, bias: Tensor) -> Tensor:
    """B n D -> B n D"""
    qkv_bias = None
    if attention.q_bias is not None:
        qkv_bias = torch.cat((attention.q_bias, torch.zeros_like(attention.q_bias), attention.v_bias))
    qkv = linear(tokens, attention.qkv.weight, qkv_bias)
    q, k, v = qkv.unflatten(2, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    dropout = attention.attn_drop.p if attention.training else 0.0
    x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), dropout_p=dropout)
    return attention.proj_drop(attention.proj(x.transpose(1, 2).flatten(2)))  # type: ignore[no-any-return]


def _interpolation(old: int, new: int) -> Tensor:
    """Weights of the 2·old - 1 displacements along a side for each of the 2·new - 1: linear, constant outside."""
    places, wanted = _places(old, new), torch.arange(1.0 - new, new)
    right = torch.bucketize(wanted, places).clamp(max=len(places) - 1)
    left = (right - 1).clamp(min=0)
    fraction = ((wanted - places[left]) / (places[right] - places[left]).clamp(min=1e-6)).clamp(0.0, 1.0)
    index = left + fraction * (right - left)
    return (1.0 - (index.unsqueeze(1) - torch.arange(len(places))).abs()).clamp(min=0.0)


def _places(old: int, new: int) -> Tensor:
    """Positions of the displacements along a side of `old` patches on a side of `new`, to resize a table.

    A neighbor stays a neighbor, one patch away; each further one is put farther from the one before by a constant
    ratio, such that the last reaches the new edge. The ratio is at least 1.01 and at most 1.5.
    """
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        reaches = (ratio ** (old - 1) - 1) / (ratio - 1)
        low, high = (low, ratio) if reaches > new - 1 else (ratio, high)
    ahead = (ratio ** torch.arange(old - 1.0)).cumsum(0)
    return torch.cat((-ahead.flip(0), torch.zeros(1), ahead))
