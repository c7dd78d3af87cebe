"""Names of tensors in the files of Hugging Face transformers, and what timm calls them.

The library has renamed its modules over the years, and files with all of these names exist.
"""

import re

import torch
from torch import Tensor

_BLOCK = r"^(?:encoder\.)?layers?\.(\d+)\."
_RENAMED = [
    (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (_BLOCK + r"(?:layernorm_before|norm1)\.", r"blocks.\1.norm1."),
    (_BLOCK + r"(?:layernorm_after|norm2)\.", r"blocks.\1.norm2."),
    (_BLOCK + r"attention\.(?:attention\.query|q_proj)\.", r"blocks.\1.attn.q."),
    (_BLOCK + r"attention\.(?:attention\.key|k_proj)\.", r"blocks.\1.attn.k."),
    (_BLOCK + r"attention\.(?:attention\.value|v_proj)\.", r"blocks.\1.attn.v."),
    (_BLOCK + r"attention\.(?:output\.dense|o_proj)\.", r"blocks.\1.attn.proj."),
    (_BLOCK + r"(?:intermediate\.dense|mlp\.fc1)\.", r"blocks.\1.mlp.fc1."),
    (_BLOCK + r"(?:output\.dense|mlp\.fc2|mlp\.weights_out|mlp\.down_proj)\.", r"blocks.\1.mlp.fc2."),
    (_BLOCK + r"mlp\.weights_in\.", r"blocks.\1.mlp.fc1."),
    (_BLOCK + r"mlp\.(gate|up)_proj\.", r"blocks.\1.mlp.\2."),
    (_BLOCK + r"layer_scale([12])\.lambda1$", r"blocks.\1.ls\2.gamma"),
    (_BLOCK + r"lambda_([12])$", r"blocks.\1.gamma_\2"),
    (_BLOCK + r"(?:attention\.)*relative_position_bias\.(relative_position_\w+)$", r"blocks.\1.attn.\2"),
    (r"^(?:(?:encoder\.)?relative|shared)_position_bias\.", "rel_pos_bias."),
    (r"^(?:layernorm|norm)\.", "norm."),
    (r"^pooler\.layernorm\.", "fc_norm."),
]


def to_timm_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a transformers model under timm's names; those without one keep their own."""
    renamed = {_renamed(name): tensor for name, tensor in tensors.items()}
    for name in [name for name in renamed if name.endswith(".attn.q.weight")]:
        _join_attention(renamed, name.removesuffix("q.weight"))
    for name in [name for name in renamed if name.endswith((".mlp.gate.weight", ".mlp.gate.bias"))]:
        gate, up = renamed.pop(name), renamed.pop(name.replace(".gate.", ".up."), None)
        if up is not None:
            renamed[name.replace(".gate.", ".fc1.")] = torch.cat((gate, up))
    return renamed


def _renamed(name: str) -> str:
    for pattern, replacement in _RENAMED:
        new, count = re.subn(pattern, replacement, name)
        if count:
            return new
    return name


def _join_attention(tensors: dict[str, Tensor], prefix: str) -> None:
    """Join queries, keys and values, which are one matrix in timm. BEiTs have no bias for keys."""
    parts = [tensors.pop(f"{prefix}{part}.weight", None) for part in "qkv"]
    biases = {part: tensors.pop(f"{prefix}{part}.bias", None) for part in "qkv"}
    if all(part is not None for part in parts):
        tensors[f"{prefix}qkv.weight"] = torch.cat([part for part in parts if part is not None])
    present = [bias for bias in biases.values() if bias is not None]
    if len(present) == 3:
        tensors[f"{prefix}qkv.bias"] = torch.cat(present)
    else:
        tensors.update({f"{prefix}{part}_bias": bias for part, bias in biases.items() if bias is not None})
