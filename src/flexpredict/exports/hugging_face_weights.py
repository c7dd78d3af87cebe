"""Which model of transformers an encoder is, and its weights in the names of that model's files.

All versions of transformers since 4.50 read files with these names; version 5 renames them on reading.
"""

import torch
from torch import Tensor

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import is_relative, weights_of

_ATTENTION = ("query", "key", "value")
# Within a block: timm's names -> names in transformers.
_OF_VIT = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_OF_DINOV2 = {name: name for name in _OF_VIT} | {"attn.proj": "attention.output.dense"}
_TABLE = "relative_position_bias_table"
_OPTIONAL = ("cls_token", "reg_token", "blocks.attn.qkv.bias", "blocks.ls1.gamma", "blocks.ls2.gamma")
_OPTIONAL_OF_BEIT = (
    *("cls_token", "pos_embed", "norm.weight", "norm.bias", f"rel_pos_bias.{_TABLE}"),
    *(f"blocks.{name}" for name in ("gamma_1", "gamma_2", "attn.qkv.bias", "attn.q_bias", "attn.v_bias")),
    f"blocks.attn.{_TABLE}",
)


def optional_weights(encoder: ViTEncoder) -> tuple[str, ...]:
    """Weights that only some encoders of its class have; see `refuse_other_weights`."""
    return _OPTIONAL_OF_BEIT if is_relative(encoder) else _OPTIONAL


def architecture(encoder: ViTEncoder) -> str:
    """The name of its class in transformers."""
    if is_relative(encoder):
        return "BeitModel"  # data2vec-vision's is a copy of it
    vit = encoder.encoder.vit
    scaled = any(name.endswith("ls1.gamma") for name in vit.state_dict())
    if vit.cls_token is None and (vit.reg_token is not None or scaled):
        has = "registers" if vit.reg_token is not None else "layer scales"
        raise UserError(
            f"{encoder.what} has {has} and no class token, and no model of transformers is built like that. Use "
            "format=timm, onnx or torch-export."
        )
    if vit.cls_token is None:
        return "IJepaModel"
    if vit.reg_token is not None:
        return "Dinov2WithRegistersModel"
    return "Dinov2Model" if scaled else "ViTModel"


def is_dinov2(name: str) -> bool:
    return name.startswith("Dinov2")


def renamed_weights(encoder: ViTEncoder) -> dict[str, Tensor]:
    """Its weights under the names of transformers."""
    weights, of_dinov2 = weights_of(encoder), is_dinov2(architecture(encoder))
    result = _embeddings(encoder, weights)
    layers = {"patch_embed.proj": "embeddings.patch_embeddings.projection", "norm": "layernorm"}
    for index in range(encoder.depth):
        ours, theirs = f"blocks.{index}", f"encoder.layer.{index}"
        for layer, other in (_OF_DINOV2 if of_dinov2 else _OF_VIT).items():
            layers[f"{ours}.{layer}"] = f"{theirs}.{other}"
        for kind in ("weight", "bias"):
            packed = weights.get(f"{ours}.attn.qkv.{kind}")
            if packed is not None:
                for part, tensor in zip(_ATTENTION, packed.chunk(3), strict=True):
                    result[f"{theirs}.attention.attention.{part}.{kind}"] = tensor.clone()
        if of_dinov2:
            for number in (1, 2):
                scale = weights.get(f"{ours}.ls{number}.gamma", torch.ones(encoder.dim))
                result[f"{theirs}.layer_scale{number}.lambda1"] = scale
        if is_relative(encoder):
            result |= _of_beit(weights, ours, theirs, encoder.dim)
    if f"rel_pos_bias.{_TABLE}" in weights:
        result[f"encoder.relative_position_bias.{_TABLE}"] = weights[f"rel_pos_bias.{_TABLE}"]
    if "norm.weight" not in weights:
        del layers["norm"]
    for layer, other in layers.items():
        for kind in ("weight", "bias"):
            result[f"{other}.{kind}"] = weights[f"{layer}.{kind}"]
    return result


def _of_beit(weights: dict[str, Tensor], ours: str, theirs: str, dim: int) -> dict[str, Tensor]:
    """What only a BEiT's block has: layer scales, no bias of keys, a table."""
    result = {}
    for part in ("query", "value"):
        bias = weights.get(f"{ours}.attn.{part[0]}_bias", torch.zeros(dim))  # transformers always has one
        result[f"{theirs}.attention.attention.{part}.bias"] = bias
    others = {f"{ours}.gamma_{number}": f"{theirs}.lambda_{number}" for number in (1, 2)}
    others[f"{ours}.attn.{_TABLE}"] = f"{theirs}.attention.attention.relative_position_bias.{_TABLE}"
    return result | {other: weights[name] for name, other in others.items() if name in weights}


def _embeddings(encoder: ViTEncoder, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tokens and positions."""
    if "pos_embed" not in weights:
        return {"embeddings.cls_token": weights["cls_token"]}
    prefix = encoder.encoder.vit.num_prefix_tokens
    positions = weights["pos_embed"]  # 1 (prefix + N) D, or 1 N D where timm gives prefix tokens no position
    if getattr(encoder.encoder.vit, "no_embed_class", False):
        positions = torch.cat((torch.zeros(1, prefix, encoder.dim), positions), dim=1)
    if prefix == 0:
        return {"embeddings.position_embeddings": positions}
    result = {
        "embeddings.cls_token": weights["cls_token"],
        "embeddings.position_embeddings": torch.cat((positions[:, :1], positions[:, prefix:]), dim=1),
    }
    if "reg_token" in weights:
        # Registers have no positions in transformers, so ours are added to the tokens.
        result["embeddings.register_tokens"] = weights["reg_token"] + positions[:, 1:prefix]
    if is_dinov2(architecture(encoder)):
        result["embeddings.mask_token"] = torch.zeros(1, encoder.dim)  # not used, but expected in the file
    return result
