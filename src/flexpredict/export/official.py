"""One `.pth.tar` in the layout of the published I-JEPA and StoP files, for code that reads those."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from flexpredict.encoders.checkpoints.predictors import PREDICTOR_NAMES
from flexpredict.encoders.frozen import ViTEncoder
from flexpredict.export.architecture import refuse_other_weights
from flexpredict.export.format import (
    Format,
    Outputs,
    Reader,
    heads_of,
    norm_eps,
    pixels_code,
    pooled_tokens,
    quoted,
    weights_of,
)
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import VisionTransformer, resample_abs_pos_embed
from flexpredict.runs.checkpoint import newest_checkpoint
from flexpredict.runs.run_record import Run, read_run
from flexpredict.settings.recipe import parse_image_sizes

_PREDICTOR = {ours: published for published, ours in PREDICTOR_NAMES.items()}
_EPS = 1e-6  # of the published models


def _check(encoder: ViTEncoder) -> None:
    refuse_other_weights(encoder, "the published I-JEPA code")


def _write(encoder: ViTEncoder, path: Path, run: Path | None) -> tuple[str, ...]:
    notes = [f"The number of heads is not in the file: {heads_of(encoder)} in the encoder."]
    eps = norm_eps(encoder.encoder.vit)
    if eps != _EPS:
        notes.append(f"Its layer norms had ε {eps:g}; the published code has {_EPS:g}.")
    if run is None or not any((run / "checkpoints").glob("step-*")):
        own = weights_of(encoder)
        content: dict[str, Any] = {"encoder": own, "target_encoder": own}
        content |= dict.fromkeys(("epoch", "loss", "batch_size", "world_size", "lr"))
        notes.append("`encoder` and `target_encoder` are the same; there is no predictor.")
    else:
        record = read_run(run)
        checkpoint = newest_checkpoint(run / "checkpoints")
        tensors = load_file(checkpoint / "model.safetensors")
        content = {
            "encoder": _encoder_weights(encoder, tensors, "context_encoder", record),
            "target_encoder": _encoder_weights(encoder, tensors, "target_encoder", record),
        }
        predictor, note = _predictor(encoder, tensors, record)
        if predictor:
            content["predictor"] = predictor
        content |= _progress(record, checkpoint)
        notes += [*_encoders(tensors), note]
    for part in ("encoder", "predictor", "target_encoder"):
        if part in content:
            content[part] = {f"module.{name}": tensor for name, tensor in content[part].items()}
    torch.save({**content, "opt": {}, "scaler": None}, path)
    notes.append("There is no state of an optimiser: weights can be read, training cannot be resumed from it.")
    return tuple(notes)


def _encoders(tensors: dict[str, Tensor]) -> tuple[str, ...]:
    both = any(name.startswith("target_encoder.") for name in tensors)
    return ("`encoder` is the context encoder, `target_encoder` its moving average.",) if both else ()


def _encoder_weights(encoder: ViTEncoder, tensors: dict[str, Tensor], part: str, record: Run) -> dict[str, Tensor]:
    """Of one of the two encoders of a checkpoint, with positions for the size that is exported."""
    prefix = f"{part}.vit."
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not own:  # a method without a moving average has one encoder
        return weights_of(encoder)
    assert encoder.spec is not None
    trained = replace(encoder.spec, image_size=_trained_size(record)).build()
    trained.vit.load_state_dict(own)
    resized = trained.resized(encoder.encoder.grid).vit.state_dict()
    return {name: tensor.detach() for name, tensor in resized.items()}


def _predictor(encoder: ViTEncoder, tensors: dict[str, Tensor], record: Run) -> tuple[dict[str, Tensor], str]:
    """Its weights in published names, and what is to be said of them."""
    own = {name.removeprefix("predictor."): t for name, t in tensors.items() if name.startswith("predictor.")}
    positions, mask_token = own.pop("positions", None), own.pop("mask_token", None)
    strangers = [name for name in own if name.partition(".")[0] not in _PREDICTOR]
    method = record.config.get("method", "ijepa")
    if strangers or mask_token is None or method != "ijepa":
        why = f"has no place for {strangers[0]}" if strangers else f"is I-JEPA's, and this run's method is {method}"
        return {}, f"The predictor is left out: the published one {why}."
    grid, dim = encoder.encoder.grid, mask_token.shape[0]
    if positions is None:
        where = sincos_positions(grid, dim)[None]
    else:
        height, width = _trained_size(record)
        trained = [height // encoder.patch_size[0], width // encoder.patch_size[1]]
        where = resample_abs_pos_embed(positions[None], list(grid), trained, num_prefix_tokens=0)
    # Readers may tell the two by which comes first, as in the published files.
    released = record.config.get("positions", {}).get("convention") == "released"
    first = {"mask_token": mask_token.view(1, 1, dim), "predictor_pos_embed": where}
    renamed = dict(reversed(first.items())) if released else first
    for name, tensor in own.items():
        head, _, rest = name.partition(".")
        renamed[f"{_PREDICTOR[head]}.{rest}"] = tensor
    heads = record.config.get("predictor", {}).get("heads")
    reads, why, other = ("StoP", "A's bias", "I-JEPA") if released else ("I-JEPA", "the mask token", "StoP")
    return renamed, (
        f"The predictor has {heads} heads and is read right by {reads}'s published code, which adds {why} to masked "
        f"tokens; with {other}'s it would load and predict something else."
    )


def _progress(record: Run, checkpoint: Path) -> dict[str, Any]:
    """Where training stood, as far as the run says."""
    batch_size, samples = record.config.get("batch_size"), record.environment.get("images")
    step = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))["step"]
    last = {name: record.series[name].last if name in record.series else None for name in ("loss", "lr")}
    return {
        "epoch": step * batch_size // samples if batch_size and samples else None,
        "loss": last["loss"],
        "batch_size": batch_size,
        "world_size": record.environment.get("ranks"),
        "lr": last["lr"],
    }


def _trained_size(record: Run) -> tuple[int, int]:
    return parse_image_sizes(record.config["image_size"])[0]


def _part(encoder: ViTEncoder) -> str:
    """Under which name the file has the encoder that was asked for."""
    return "encoder" if encoder.what.startswith("context ") else "target_encoder"


def _read(encoder: ViTEncoder, path: Path) -> Reader:
    saved = torch.load(path, weights_only=True)[_part(encoder)]
    weights = {name.removeprefix("module."): tensor for name, tensor in saved.items()}
    model = VisionTransformer(**_arguments(encoder)).eval()
    model.load_state_dict(weights)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (encoder.mean, encoder.std))

    def outputs(images: Tensor) -> Outputs:
        return pooled_tokens(encoder, model.forward_features((images / 255 - mean) / std))

    return outputs


def _arguments(encoder: ViTEncoder) -> dict[str, Any]:
    """I-JEPA's architecture in timm's words."""
    return {
        "img_size": encoder.image_size,
        "patch_size": encoder.patch_size[0],
        "embed_dim": encoder.dim,
        "depth": encoder.depth,
        "num_heads": heads_of(encoder),
        "mlp_ratio": encoder.encoder.vit.blocks[0].mlp.fc1.out_features / encoder.dim,
        "class_token": False,
        "global_pool": "",
        "num_classes": 0,
    }


def _load(encoder: ViTEncoder, name: str) -> str:
    return f"weights = torch.load({quoted(name)}, weights_only=True)[{quoted(_part(encoder))}]"


def _usage(encoder: ViTEncoder, name: str) -> str:
    arguments = "".join(f"    {key}={value!r},\n" for key, value in _arguments(encoder).items())
    return f"""\
import numpy as np
import torch
from PIL import Image, ImageOps
from timm.models.vision_transformer import VisionTransformer

{_load(encoder, name)}
model = VisionTransformer(
{arguments}).eval()
model.load_state_dict({{name.removeprefix("module."): tensor for name, tensor in weights.items()}})
{pixels_code(encoder)}\
with torch.inference_mode():
    patch_features = model.forward_features(torch.from_numpy(pixel_values))  # 1 N {encoder.dim}
pooled = patch_features.mean(dim=1)  # 1 {encoder.dim}
"""


FORMAT = Format("pytorch", (".pth.tar", ".pth"), (), _check, _write, _read, _load, _usage)
