"""A folder that timm opens: `timm.create_model("local-dir:FOLDER", pretrained=True)`, or hf-hub: once uploaded."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import (
    Format,
    Outputs,
    Reader,
    has_final_norm,
    is_relative,
    normalized,
    outputs_of_tokens,
    quoted,
    refuse_rectangles,
    weights_of,
)
from flexpredict.model.encoder import norm_eps_of
from flexpredict.model.timm_parts import timm
from flexpredict.runs.run_folder import RunFolder


def _check(encoder: ViTEncoder) -> None:
    if encoder.spec is None:
        raise UserError(
            f"{encoder.what} does not say from which timm model it was built, so timm could not build it again. "
            "Use format=onnx or torch-export."
        )
    if is_relative(encoder):
        refuse_rectangles(encoder, "timm's Beit", "onnx or torch-export")


def _write(encoder: ViTEncoder, folder: Path, run: RunFolder | None) -> tuple[str, ...]:
    spec, height, width = encoder.spec, *encoder.image_size
    assert spec is not None
    # timm has no argument norm_eps. None is the default where the encoder is built, but not in a file.
    options = {name: value for name, value in spec.options.items() if name != "norm_eps" and value is not None}
    pooling = _global_pool(encoder)
    arguments: dict[str, Any] = {
        **options,
        "img_size": [height, width],
        "patch_size": spec.patch_size,
        "global_pool": pooling,
    }
    if not is_relative(encoder):
        arguments["fc_norm"] = False  # the norm comes before pooling, as in training
    if encoder.encoder.vit.cls_token is None:
        arguments["class_token"] = False
    config = {
        "architecture": spec.model.split(".")[0],
        "num_classes": 0,
        "num_features": encoder.dim,
        "global_pool": pooling,
        "model_args": arguments,
        "pretrained_cfg": {
            "tag": "flexpredict",
            "num_classes": 0,
            "input_size": [3, height, width],
            "pool_size": None,
            "crop_pct": 1.0,
            "crop_mode": "center",
            "interpolation": "bicubic",
            "mean": list(encoder.mean),
            "std": list(encoder.std),
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
    }
    try:
        text = json.dumps(config, indent=2)
    except TypeError as error:
        raise UserError(
            f"{encoder.what} was built with options that a config.json cannot hold ({spec.options}). Use "
            "format=onnx or torch-export."
        ) from error
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    weights = weights_of(encoder)
    if _lacks_norm(encoder):
        weights |= {"fc_norm.weight": torch.ones(encoder.dim), "fc_norm.bias": torch.zeros(encoder.dim)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return _notes(encoder, folder)


def _global_pool(encoder: ViTEncoder) -> str:
    """timm's name of the pooling. Its Beit has a final norm if and only if it does not average."""
    if _lacks_norm(encoder):
        return "avg"
    if encoder.pooling == "class":
        return "token"
    return "" if is_relative(encoder) else "avg"


def _lacks_norm(encoder: ViTEncoder) -> bool:
    """Whether it is a BEiT without a final norm: timm then has one in the head."""
    return is_relative(encoder) and not has_final_norm(encoder)


def _pools(encoder: ViTEncoder) -> bool:
    """Whether timm's model itself pools an image into one vector."""
    return not is_relative(encoder) or _global_pool(encoder) == "token"


def _notes(encoder: ViTEncoder, folder: Path) -> tuple[str, ...]:
    with torch.device("meta"):
        here = norm_eps_of(timm.create_model(f"local-dir:{folder}"))
    before = norm_eps_of(encoder.encoder.vit)
    notes = [] if here == before else [f"Its layer norms had ε {before:g} and have timm's {here:g} here."]
    if _lacks_norm(encoder):
        notes.append("There is no final norm; the one of timm's head (fc_norm) is there, but was not trained.")
    return tuple(notes)


def _read(encoder: ViTEncoder, folder: Path) -> Reader:
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    facts = timm.data.resolve_model_data_config(model)

    def outputs(images: Tensor) -> Outputs:
        pixel_values = normalized(images, facts["mean"], facts["std"])
        found = outputs_of_tokens(encoder, model.forward_features(pixel_values))
        return Outputs(found.patches, model(pixel_values)) if _pools(encoder) else found

    return outputs


def _load(encoder: ViTEncoder, name: str) -> str:
    return f"model = timm.create_model({quoted(f'local-dir:{name}')}, pretrained=True).eval()"


FORMAT = Format(
    library="timm",
    files=("config.json", "model.safetensors"),
    check=_check,
    write=_write,
    read=_read,
    load=_load,
    usage="use_timm.py.j2",
    usage_facts=lambda encoder: {"pools": _pools(encoder)},
)
