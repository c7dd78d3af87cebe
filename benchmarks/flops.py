"""How many floating-point operations a pre-training step needs: the matrix products only, 2 m n k each.

Counted is what the result depends on, so no token that nobody reads and no recomputation. A layer that is trained
counts three times: its output, the gradient of its input and that of its weight.
"""

import math
from typing import Any

from torch import nn

from flexpredict.methods.ijepa import IJEPA


def step_flops(model: IJEPA, images: int, context: int, targets: tuple[int, int], noise: bool) -> int:
    """One step on so many images, each with `context` visible patches and `targets`: blocks, and patches of each."""
    encoder, predictor = model.context_encoder, model.predictor
    patches = math.prod(encoder.grid)
    blocks, length = targets
    masked = blocks * length
    layers, sequence = list(encoder.vit.blocks), context + length
    embedding: int = 2 * encoder.vit.patch_embed.proj.weight.numel()

    seen = patches * embedding + sum(_block(layer, patches, patches) for layer in layers[:-1])
    target_encoder = seen + _block(layers[-1], patches, min(masked, patches))  # no gradient
    # Pixels need no gradient.
    context_encoder = 2 * context * embedding + 3 * sum(_block(layer, context, context) for layer in layers)

    *first, last = predictor.blocks
    one_block = sum(_block(layer, sequence, sequence) for layer in first) + _block(last, sequence, length)
    predicted = 3 * (_linear(predictor.projection, context) + blocks * one_block + _linear(predictor.output, masked))
    # Nor does the noise.
    stochastic = 2 * _linear(predictor.projection, masked) if noise else 0
    return images * (target_encoder + context_encoder + predicted + stochastic)


def _block(block: Any, tokens: int, read: int) -> int:
    """A transformer block on `tokens` tokens of which `read` are read: keys and values of all, the rest of those."""
    qkv = _linear(block.attn.qkv, 1)
    attention: int = 2 * 2 * read * tokens * block.attn.attn_dim
    each = qkv // 3 + _linear(block.attn.proj, 1) + _linear(block.mlp.fc1, 1) + _linear(block.mlp.fc2, 1)
    return tokens * (qkv // 3 * 2) + attention + read * each


def _linear(layer: nn.Linear, rows: int) -> int:
    return 2 * rows * layer.in_features * layer.out_features
