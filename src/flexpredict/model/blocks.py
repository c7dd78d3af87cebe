"""Transformer blocks that are computed only where they are read, or recomputed in the backward pass.

The last block of the target encoder is read at the targets alone, the last block of the predictor at the masked
tokens alone. All tokens still give keys and values, so what is read is the same as with the whole block.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from flexpredict.model.linear import as_in_forward, linear
from flexpredict.model.timm_parts import Attention, Block


def block_at(block: Any, tokens: Tensor, read: Tensor | slice) -> Tensor:
    """`block(tokens)` at `read`. tokens: B N D, read: B R indices or a slice of N -> B R D."""
    if not is_plain(block) or (isinstance(read, Tensor) and read.shape[1] >= tokens.shape[1]):
        return pick(block(tokens), read)
    normed = block.norm1(tokens)
    x = pick(tokens, read)
    x = x + block.drop_path1(block.ls1(_attention(block.attn, pick(normed, read), normed)))
    return x + block.drop_path2(block.ls2(block.mlp(block.norm2(x))))  # type: ignore[no-any-return]


def pick(tokens: Tensor, read: Tensor | slice) -> Tensor:
    """Rows of tokens: B N D at B R indices (or a slice of N) -> B R D."""
    if isinstance(read, slice):
        return tokens[:, read]
    return torch.gather(tokens, 1, read.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))


def is_plain(block: nn.Module) -> bool:
    """Other block types (parallel, post-norm, gated) run whole."""
    return type(block) is Block and type(block.attn) is Attention and getattr(block.attn, "gate", None) is None


def recompute_in_backward(blocks: Iterable[nn.Module]) -> None:
    """Save memory for more work: these blocks keep only their input. Results, names and weights stay the same."""
    for block in blocks:
        # Set on the object, not wrapped around it, so that its type, hooks and weight names stay the same.
        block.forward = partial(_recomputed, block.forward)


def _recomputed(forward: Any, *arguments: Any) -> Any:
    if torch.compiler.is_compiling():  # traced code keeps the rounding of the forward pass
        return checkpoint(forward, *arguments, use_reentrant=False)
    return checkpoint(forward, *arguments, use_reentrant=False, context_fn=as_in_forward)


def _attention(attention: Attention, queries: Tensor, tokens: Tensor) -> Tensor:
    """Attention of `queries` to `tokens` with the weights of timm's self-attention. B R D, B N D -> B R D."""
    heads, width = attention.num_heads, attention.head_dim
    weight, bias = attention.qkv.weight, attention.qkv.bias
    q_bias, kv_bias = (None, None) if bias is None else (bias[: heads * width], bias[heads * width :])
    q = linear(queries, weight[: heads * width], q_bias)
    kv = linear(tokens, weight[heads * width :], kv_bias)
    q = q.unflatten(2, (heads, width)).transpose(1, 2)
    k, v = kv.unflatten(2, (2, heads, width)).permute(2, 0, 3, 1, 4)
    dropout = attention.attn_drop.p if attention.training else 0.0
    x = F.scaled_dot_product_attention(attention.q_norm(q), attention.k_norm(k), v, dropout_p=dropout)
    x = attention.norm(x.transpose(1, 2).flatten(2))
    return attention.proj_drop(attention.proj(x))  # type: ignore[no-any-return]
