"""Small encoders of every kind that can be exported, with random weights."""

from typing import Any

import torch

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.randomness import normal, stream_key
from flexpredict.runs.encoder_file import EncoderSpec

SIZES = {"embed_dim": 32, "depth": 2, "num_heads": 2}
MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.25, 0.2)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "learned positions": {"positions": "learned"},
    "no bias of queries": {"options": {"qkv_bias": False}},
    "another ε": {"options": {"norm_eps": 1e-12}},
    "class token": {"class_token": True, "pooling": "class"},
    "class token, patches averaged": {"class_token": True, "positions": "learned"},
    "layer scales": {"class_token": True, "options": {"init_values": 0.1}},
    "registers": {"model": "vit_small_patch14_reg4_dinov2", "class_token": True, "pooling": "class"},
    "registers with positions": {
        "class_token": True,
        "positions": "learned",
        "options": {"reg_tokens": 3, "no_embed_class": False},
    },
}
BEIT: dict[str, Any] = {"model": "beit_base_patch16_224", "positions": "relative", "class_token": True}
RELATIVE: dict[str, dict[str, Any]] = {
    "a table in each block": {"pooling": "class"},
    "a table in each block, patches averaged": {},
    "one table": {"options": {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True, "norm_eps": 1e-12}},
    "both tables": {"options": {"use_shared_rel_pos_bias": True}, "pooling": "class"},
    "absolute positions besides": {"options": {"use_abs_pos_emb": True}},
    "no layer scales, no bias": {"options": {"init_values": 0.0, "qkv_bias": False}},
    "scales that timm has unasked": {"options": {"init_values": None}},
    "no final norm": {"options": {"global_pool": "avg"}},
    "no final norm, class token": {"options": {"global_pool": "avg"}, "pooling": "class"},
}


def small(
    model: str = "vit_tiny_patch16_224",
    image_size: tuple[int, int] = (32, 32),
    options: dict[str, Any] | None = None,
    pooling: Any = "mean",
    positions: Any = "sincos",
    class_token: bool = False,
) -> ViTEncoder:
    """Every weight is random, those that start as zeros and ones too."""
    spec = EncoderSpec(model, image_size, 8, positions, class_token, SIZES | (options or {}))
    encoder = spec.build()
    with torch.no_grad():
        for index, (name, tensor) in enumerate(encoder.vit.state_dict().items()):
            if name != "pos_embed" or positions == "learned":
                drawn = normal(torch.tensor([stream_key(index, "test weights")]), tensor.numel()).view(tensor.shape)
                tensor.add_(0.1 * drawn)
    return ViTEncoder(encoder, "small", "a small encoder", spec=spec, pooling=pooling, mean=MEAN, std=STD).eval()
