"""A timm vision transformer that can run on a subset of its patches.

Any plain ViT that timm knows by name, with or without class and register tokens, any patch size, any grid; and those
of BEiT's kind (see relative_encoder). Its weights stay in timm's own layout (`encoder.vit`), so it can be handed back
to timm as it is.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.errors import UserError
from flexpredict.model.blocks import block_at, pick
from flexpredict.model.linear import linear, use_faster_linear
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import PatchEmbed, VisionTransformer, resample_abs_pos_embed
from flexpredict.settings.recipe import EncoderPositions
from flexpredict.sizes import Grid


def heads_of(vit: nn.Module) -> int:
    """Attention heads; kinds of blocks differ in where they keep that number."""
    return int(_in_first_block(vit, "num_heads", 1))


def norm_eps_of(vit: nn.Module) -> float:
    """The ε of its norms."""
    return float(_in_first_block(vit, "eps", 1e-6))


def _in_first_block(vit: Any, name: str, usual: float) -> float:
    return next((getattr(part, name) for part in vit.blocks[0].modules() if hasattr(part, name)), usual)


class Encoder(nn.Module):
    """f_θ: images -> patch features, of all patches or of those asked for.

    Args:
        vit: a timm VisionTransformer; its class token, registers and head stay with it.
        positions: "sincos" replaces its position embedding by fixed sines and cosines (zero on prefix tokens);
            "learned" keeps and trains the one it has. ("relative" is what a RelativeEncoder has.)
    """

    def __init__(self, vit: VisionTransformer, positions: EncoderPositions = "learned") -> None:
        super().__init__()
        self.check(vit)
        use_faster_linear(vit)
        self.vit = vit
        self.positions = positions
        self.grid: Grid = tuple(vit.patch_embed.grid_size)
        self.patch_size: tuple[int, int] = tuple(vit.patch_embed.patch_size)
        self.dim: int = vit.embed_dim
        self.depth = len(vit.blocks)
        # Positions of the class and register tokens stand before those of the patches, unless timm leaves them out.
        self._prefix_positions = 0 if getattr(vit, "no_embed_class", False) else vit.num_prefix_tokens
        if positions == "sincos":
            patches = sincos_positions(self.grid, self.dim)
            prefix = torch.zeros(self._prefix_positions, self.dim)
            vit.pos_embed = nn.Parameter(torch.cat((prefix, patches))[None], requires_grad=False)

    def forward(self, images: Tensor, keep: Tensor | None = None, read: Tensor | None = None) -> Tensor:
        """Features of the last layer. images: B C H W (normalized).

        keep: B N indices of the patches that the transformer sees (all by default); with (B·C) N, each image is
            seen through C different masks in turn.
        read: B R indices, among the patches it sees, of those whose features are returned (all by default).
        """
        x = self.embed(images, keep)
        *blocks, last = self.blocks_on(self.grid_of(images), keep)
        for block in blocks:
            x = block(x)
        if read is None:
            x = last(x)[:, self.vit.num_prefix_tokens :]
        else:
            x = block_at(last, x, read + self.vit.num_prefix_tokens)
        return self.vit.norm(x)  # type: ignore[no-any-return]

    def last_layers(self, images: Tensor, count: int = 1) -> list[Tensor]:
        """Patch features after each of the last `count` blocks, final norm applied to each: B N D each."""
        return [tokens[:, self.vit.num_prefix_tokens :] for tokens in self.last_tokens(images, count)]

    def last_tokens(self, images: Tensor, count: int = 1, normed: bool = True) -> list[Tensor]:
        """`last_layers` with class and register tokens, which come first: B (prefix + N) D each.

        normed: apply the final norm, as usual; without it tokens keep their lengths.
        """
        if not 1 <= count <= self.depth:
            raise UserError(
                f"Features of the last {count} layers were requested from an encoder of {self.depth}. "
                f"Ask for 1 to {self.depth}."
            )
        x = self.embed(images, keep=None)
        layers = []
        for index, block in enumerate(self.blocks_on(self.grid_of(images))):
            x = block(x)
            if index >= self.depth - count:
                layers.append(self.vit.norm(x) if normed else x)
        return layers

    def blocks_on(self, grid: Grid, keep: Tensor | None = None) -> Sequence[Callable[[Tensor], Tensor]]:
        """The blocks in their order, for tokens of these patches of this grid (all by default), prefix tokens first.

        Each: B (prefix + N) D -> B (prefix + N) D.
        """
        return self.vit.blocks  # type: ignore[no-any-return]

    def resized(self, grid: Grid) -> "Encoder":
        """A copy for another grid: sines and cosines computed anew, learned positions interpolated."""
        other = copy.deepcopy(self)
        other.vit.patch_embed.set_input_size(img_size=(grid[0] * self.patch_size[0], grid[1] * self.patch_size[1]))
        if self.vit.pos_embed is not None:
            with torch.no_grad():
                positions = torch.cat(self.positions_on(grid))[None].clone()
            other.vit.pos_embed = nn.Parameter(positions, requires_grad=self.vit.pos_embed.requires_grad)
        other.grid = grid
        return other

    def grid_of(self, images: Tensor) -> Grid:
        """Rows and columns of patches in images of this size."""
        return images.shape[2] // self.patch_size[0], images.shape[3] // self.patch_size[1]

    @staticmethod
    def check(vit: nn.Module) -> None:
        """Refuse models that do not support masking."""
        if type(vit) is not VisionTransformer or type(vit.patch_embed) is not PatchEmbed or vit.pos_embed is None:
            raise UserError(
                f"{type(vit).__name__} is not a plain vision transformer: masking needs one that cuts the image into "
                "separate patches and adds a position to each (timm's VisionTransformer, for example "
                "vit_small_patch16_224, vit_base_patch14_reg4_dinov2 or deit3_small_patch16_224) or has tables of "
                "relative ones (timm's Beit, for example beit_base_patch16_224)."
            )

    def embed(self, images: Tensor, keep: Tensor | None) -> Tensor:
        """Tokens with positions, prefix tokens first: B (prefix + N) D."""
        vit = self.vit
        grid = self.grid_of(images)
        prefix_positions, patch_positions = self.positions_on(grid)
        patches = self._patchify(images, grid)
        if keep is not None:
            patches = pick(patches, keep.reshape(len(images), -1)).view(*keep.shape, -1)
        projection = vit.patch_embed.proj
        x = vit.patch_embed.norm(linear(patches, projection.weight.flatten(1), projection.bias))
        x = x + (patch_positions if keep is None else patch_positions[keep])
        prefix = [token for token in (vit.cls_token, vit.reg_token) if token is not None]
        if prefix:
            prefix_tokens = torch.cat(prefix, dim=1)
            if self._prefix_positions:
                prefix_tokens = prefix_tokens + prefix_positions
            x = torch.cat((prefix_tokens.expand(x.shape[0], -1, -1), x), dim=1)
        return vit.norm_pre(vit.pos_drop(x))  # type: ignore[no-any-return]

    def _patchify(self, images: Tensor, grid: Grid) -> Tensor:
        """B C H W -> B N (C p q): so that only the patches that are kept get embedded."""
        height, width = self.patch_size
        if images.shape[2] != grid[0] * height or images.shape[3] != grid[1] * width:
            raise UserError(
                f"An image of {images.shape[2]}x{images.shape[3]} cannot be cut into patches of {height}x{width}. "
                f"Resize it to a multiple, for example {max(grid[0], 1) * height}x{max(grid[1], 1) * width}."
            )
        x = images.reshape(images.shape[0], images.shape[1], grid[0], height, grid[1], width)
        return x.permute(0, 2, 4, 1, 3, 5).reshape(images.shape[0], grid[0] * grid[1], -1)

    def positions_on(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Positions of prefix tokens and of the patches of this grid; for another grid than the encoder's own,
        sines and cosines are computed anew and learned ones interpolated."""
        embedding, split = self.vit.pos_embed, self._prefix_positions
        if grid == self.grid:
            return embedding[0, :split], embedding[0, split:]
        if self.positions == "sincos":
            return embedding[0, :split], sincos_positions(grid, self.dim).to(embedding)
        embedding = resample_abs_pos_embed(embedding, list(grid), list(self.grid), num_prefix_tokens=split)
        return embedding[0, :split], embedding[0, split:]
