"""Attention in the last block of a transformer."""

from typing import Any

import torch
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.model.timm_parts import timm


@torch.no_grad()
def last_attention(encoder: ImageEncoder, pixels: Tensor, patches: int) -> Tensor | None:
    """Attention to each patch in the last block, mean over heads: K N.

    From the class token if there is one, else the mean over all patches. None for encoders without such a block.
    """
    block = _last_attention_block(encoder)
    if block is None:
        return None
    kept: list[Tensor] = []
    hook = block.qkv.register_forward_hook(lambda module, given, output: kept.append(output))
    try:
        tokens = encoder.tokens(pixels)[-1]
    finally:
        hook.remove()
    batch, length, _ = kept[-1].shape
    queries, keys, _ = kept[-1].float().view(batch, length, 3, block.num_heads, -1).permute(2, 0, 3, 1, 4)
    queries, keys = block.q_norm(queries), block.k_norm(keys)
    prefix = length - patches
    asking = slice(0, 1) if tokens.class_token is not None and prefix else slice(prefix, None)
    shares = (queries[:, :, asking] @ keys.mT * block.scale).softmax(dim=-1)
    looked_at: Tensor = shares[..., prefix:].mean(dim=(1, 2))
    return looked_at


def _last_attention_block(encoder: ImageEncoder) -> Any | None:
    try:
        blocks = getattr(encoder.timm(), "blocks", None)
    except UserError:  # not a timm model
        return None
    block = getattr(blocks[-1], "attn", None) if blocks else None
    return block if type(block) is timm.layers.Attention else None
