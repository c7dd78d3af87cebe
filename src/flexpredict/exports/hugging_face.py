"""A folder that transformers opens: IJepaModel, ViTModel, Dinov2Model, Dinov2WithRegistersModel or BeitModel."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import (
    Format,
    Outputs,
    Reader,
    has_final_norm,
    is_relative,
    outputs_of_tokens,
    quoted,
    refuse_other_weights,
    refuse_rectangles,
)
from flexpredict.exports.hugging_face_weights import architecture, is_dinov2, optional_weights, renamed_weights
from flexpredict.model.encoder import heads_of, norm_eps_of
from flexpredict.runs.run_folder import RunFolder

_FILES = ("config.json", "model.safetensors", "preprocessor_config.json")
_TYPES = {
    "IJepaModel": "ijepa",
    "ViTModel": "vit",
    "Dinov2Model": "dinov2",
    "Dinov2WithRegistersModel": "dinov2_with_registers",
    "BeitModel": "beit",
}


def _check(encoder: ViTEncoder) -> None:
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise UserError("format=hf needs the transformers library: pip install 'flexpredict[hf]'.") from error
    name = architecture(encoder)
    refuse_other_weights(encoder, f"transformers' {name}", optional_weights(encoder))
    _activation(encoder)
    if is_relative(encoder):
        refuse_rectangles(encoder, f"a {name}", "onnx or torch-export")
    elif is_dinov2(name):
        refuse_rectangles(encoder, f"a {name}", "timm, onnx or torch-export")
    if is_dinov2(name) and _hidden(encoder) % encoder.dim:
        raise UserError(
            f"{encoder.what} would be a {name}, whose MLP must be a whole multiple of its width; this one has "
            f"{_hidden(encoder)} for {encoder.dim}. Use format=timm, onnx or torch-export."
        )


def _write(encoder: ViTEncoder, folder: Path, run: RunFolder | None) -> tuple[str, ...]:
    name, (height, width) = architecture(encoder), encoder.image_size
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": 3,  # bicubic
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(encoder.mean),
        "image_std": list(encoder.std),
    }
    for file, content in (("config.json", _config(encoder, name)), ("preprocessor_config.json", processor)):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    save_file(renamed_weights(encoder), folder / "model.safetensors", metadata={"format": "pt"})
    return (f"Its class is {name}; the image processor resizes to {height}x{width} without cropping.",)


def _config(encoder: ViTEncoder, name: str) -> dict[str, Any]:
    height, width = encoder.image_size
    vit = encoder.encoder.vit
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": _TYPES[name],
        "hidden_size": encoder.dim,
        "num_hidden_layers": encoder.depth,
        "num_attention_heads": heads_of(encoder.encoder.vit),
        "image_size": height if height == width else [height, width],
        "patch_size": encoder.patch_size[0],
        "num_channels": 3,
        "hidden_act": _activation(encoder),
        "layer_norm_eps": norm_eps_of(vit),
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "torch_dtype": "float32",
    }
    if is_dinov2(name):
        config |= {"mlp_ratio": _hidden(encoder) // encoder.dim, "use_swiglu_ffn": False}
    else:
        config |= {"intermediate_size": _hidden(encoder)}
    if is_relative(encoder):
        config |= {
            "use_absolute_position_embeddings": vit.pos_embed is not None,
            "use_relative_position_bias": vit.blocks[0].attn.relative_position_bias_table is not None,
            "use_shared_relative_position_bias": vit.rel_pos_bias is not None,
            "use_mean_pooling": not has_final_norm(encoder),
            "layer_scale_init_value": 0.0 if vit.blocks[0].gamma_1 is None else 0.1,
            "drop_path_rate": 0.0,
        }
    else:
        config |= {"qkv_bias": vit.blocks[0].attn.qkv.bias is not None}
    if name == "Dinov2WithRegistersModel":
        config |= {"num_register_tokens": vit.reg_token.shape[1]}
    return config


def _activation(encoder: ViTEncoder) -> str:
    act = getattr(getattr(encoder.encoder.vit.blocks[0], "mlp", None), "act", None)
    name = type(act).__name__
    if isinstance(act, nn.GELU):
        return "gelu" if act.approximate == "none" else "gelu_pytorch_tanh"
    known = {"GELU": "gelu", "GELUTanh": "gelu_pytorch_tanh", "QuickGELU": "quick_gelu", "SiLU": "silu"}
    if name not in known:
        raise UserError(
            f"{encoder.what} has the activation {name}, whose name in transformers is not known here. Use "
            "format=timm, onnx or torch-export."
        )
    return known[name]


def _hidden(encoder: ViTEncoder) -> int:
    """Width of the MLP."""
    return int(encoder.encoder.vit.blocks[0].mlp.fc1.out_features)


def _read(encoder: ViTEncoder, folder: Path) -> Reader:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name = architecture(encoder)
    model, loaded = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, **_unpooled(name))
    wrong = [key for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in loaded[kind]]
    if wrong:
        raise UserError(
            f"transformers {transformers.__version__} does not read {name} as it was written: {wrong[0]} does not "
            "fit. Nothing was kept; use format=timm, or another version of transformers."
        )
    processor = transformers.AutoImageProcessor.from_pretrained(folder)

    def outputs(images: Tensor) -> Outputs:
        prepared = processor(list(images), do_resize=False, return_tensors="pt")
        return outputs_of_tokens(encoder, model.eval()(**prepared).last_hidden_state)

    return outputs


def _unpooled(name: str) -> dict[str, bool]:
    """Arguments that leave out the pooler, whose weights would be random."""
    return {} if is_dinov2(name) else {"add_pooling_layer": False}


def _load(encoder: ViTEncoder, name: str) -> str:
    kind = architecture(encoder)
    options = "".join(f", {key}={value}" for key, value in _unpooled(kind).items())
    return f"model = {kind}.from_pretrained({quoted(name)}{options}).eval()"


FORMAT = Format(
    library="transformers",
    files=_FILES,
    check=_check,
    write=_write,
    read=_read,
    load=_load,
    usage="use_hf.py.j2",
    usage_facts=lambda encoder: {"model_class": architecture(encoder)},
)
