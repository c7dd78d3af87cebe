"""A straightforward implementation of the published I-JEPA, as a peer for the benchmark of a step.

Blocks are computed without shortcuts, attention is softmax(q kᵀ) v, each target block gets its own copy of the
context, and masks, optimizer and moving average are Python loops. It takes its weights from a `flexpredict` model,
and with the same masks it computes the same loss.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from machine import plain_copy
from masking import looped
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.masking import Masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.settings.masking import Masking


class Straightforward:
    """A contender. It draws its own masks, to include their time, but trains on the given ones: equal work."""

    def __init__(self, model: IJEPA, images: Tensor, masking: Masking, masks: Sequence[Masks]) -> None:
        self.images, self.masking, self.masks = images, masking, masks
        self.grid = model.context_encoder.grid
        self.encoder = Encoder(model.context_encoder.vit)
        self.first_weight = self.encoder.patch_embed.weight
        self.target_encoder = copy.deepcopy(self.encoder)
        for parameter in self.target_encoder.parameters():
            parameter.requires_grad = False
        self.predictor = Predictor(model)
        matrices: list[Tensor] = []
        vectors: list[Tensor] = []
        for parameter in [*self.encoder.parameters(), *self.predictor.parameters()]:
            (matrices if parameter.ndim > 1 else vectors).append(parameter)
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.04}, {"params": vectors, "weight_decay": 0.0}],
            lr=1e-4,
            foreach=False,
            fused=False,
        )

    def __call__(self, number: int) -> None:
        looped(self.masking, self.grid, number, len(self.images))
        loss = self.loss(self.masks[number])
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        momentum = 0.996
        with torch.no_grad():
            for average, parameter in zip(self.target_encoder.parameters(), self.encoder.parameters(), strict=True):
                average.mul_(momentum).add_((1 - momentum) * parameter)

    def loss(self, masks: Masks) -> Tensor:
        context, targets = masks.context[:, 0], masks.targets[:, 0]
        with torch.no_grad():
            features = self.target_encoder(self.images)
            features = F.layer_norm(features, features.shape[-1:])
            wanted = torch.cat([take(features, block) for block in targets.unbind(1)])
        visible = self.encoder(self.images, context)
        return F.smooth_l1_loss(self.predictor(visible, context, targets), wanted)


class Encoder(nn.Module):
    """An encoder with the sizes and weights of a timm transformer."""

    positions: Tensor  # 1 N d_e

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.patch_embed = plain_copy(vit.patch_embed.proj)
        self.register_buffer("positions", vit.pos_embed.detach().clone())
        self.blocks = blocks_like(vit.blocks)
        self.norm = copy.deepcopy(vit.norm)

    def forward(self, images: Tensor, keep: Tensor | None = None) -> Tensor:
        x = self.patch_embed(images).flatten(2).transpose(1, 2) + self.positions
        if keep is not None:
            x = take(x, keep)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)  # type: ignore[no-any-return]


class Predictor(nn.Module):
    """A predictor with the sizes and weights of the model's."""

    positions: Tensor  # 1 N d_p

    def __init__(self, model: IJEPA) -> None:
        super().__init__()
        source = model.predictor
        self.projection, self.output = plain_copy(source.projection), plain_copy(source.output)
        self.mask_token = nn.Parameter(source.mask_token.detach().clone())
        self.register_buffer("positions", source.positions.detach()[None].clone())
        self.blocks = blocks_like(source.blocks)
        self.norm = copy.deepcopy(source.norm)

    def forward(self, visible: Tensor, context: Tensor, targets: Tensor) -> Tensor:
        """visible: B Nc d_e, context: B Nc, targets: B M Nt -> (M B) Nt d_e"""
        images, blocks, _ = targets.shape
        positions = self.positions.repeat(images, 1, 1)
        x = self.projection(visible.repeat(blocks, 1, 1)) + take(positions, context).repeat(blocks, 1, 1)
        masked = torch.cat([take(positions, block) for block in targets.unbind(1)]) + self.mask_token
        x = torch.cat([x, masked], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x)[:, visible.shape[1] :])  # type: ignore[no-any-return]


class Block(nn.Module):
    """A pre-norm transformer block with timm's parameter names."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(dim, hidden), "fc2": nn.Linear(hidden, dim)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """softmax(q kᵀ / √d) v for each head."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, dim = x.shape
        q, k, v = self.qkv(x).reshape(rows, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (dim // self.heads) ** -0.5).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(rows, tokens, dim))  # type: ignore[no-any-return]


def blocks_like(blocks: Any) -> nn.ModuleList:
    """Blocks with the sizes and weights of timm's."""
    new = nn.ModuleList(
        Block(block.attn.qkv.in_features, block.attn.num_heads, block.mlp.fc1.out_features) for block in blocks
    )
    new.load_state_dict(blocks.state_dict())
    return new


def take(tokens: Tensor, indices: Tensor) -> Tensor:
    """tokens: B N D at B K -> B K D"""
    return torch.gather(tokens, 1, indices.unsqueeze(-1).repeat(1, 1, tokens.shape[-1]))
