"""One `.pth.tar` in the layout of the published I-JEPA and StoP files, for code that reads those."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flexpredict.encoders.checkpoints.predictors import PREDICTOR_NAMES
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.exports.format import (
    Format,
    Outputs,
    Reader,
    normalized,
    outputs_of_tokens,
    quoted,
    refuse_other_weights,
    weights_of,
)
from flexpredict.model.encoder import heads_of, norm_eps_of
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import VisionTransformer, resample_abs_pos_embed
from flexpredict.runs.checkpoint import last_checkpoint, model_tensors, read_state
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.runs.run_folder import RunFolder
from flexpredict.runs.run_record import Run, read_run

_PREDICTOR = {ours: published for published, ours in PREDICTOR_NAMES.items()}
_EPS = 1e-6  # of the published models


def _check(encoder: ViTEncoder) -> None:
    refuse_other_weights(encoder, "the published I-JEPA code")


def _write(encoder: ViTEncoder, path: Path, run: RunFolder | None) -> tuple[str, ...]:
    notes = [f"The file does not store the number of heads, which is {heads_of(encoder.encoder.vit)}."]
    eps = norm_eps_of(encoder.encoder.vit)
    if eps != _EPS:
        notes.append(f"Its layer norms had ε {eps:g}; the published code has {_EPS:g}.")
    checkpoint = None if run is None else last_checkpoint(run.checkpoints)
    if run is None or checkpoint is None:
        own = weights_of(encoder)
        content: dict[str, Any] = {"encoder": own, "target_encoder": own}
        content |= dict.fromkeys(("epoch", "loss", "batch_size", "world_size", "lr"))
        notes.append("`encoder` and `target_encoder` are the same; there is no predictor.")
    else:
        content, more = _content_of_run(encoder, read_run(run.path), checkpoint)
        notes += more
    for part in ("encoder", "predictor", "target_encoder"):
        if part in content:
            content[part] = {f"module.{name}": tensor for name, tensor in content[part].items()}
    torch.save({**content, "opt": {}, "scaler": None}, path)
    notes.append("There is no optimizer state: weights can be read, training cannot be resumed from it.")
    return tuple(notes)


def _content_of_run(encoder: ViTEncoder, record: Run, checkpoint: Path) -> tuple[dict[str, Any], list[str]]:
    """Both encoders and the predictor of a run, and notes."""
    notes, spec = [], EncoderSpec.of_config(record.config)
    content: dict[str, Any] = {}
    for ours, theirs in (("context_encoder", "encoder"), ("target_encoder", "target_encoder")):
        own = model_tensors(checkpoint, f"{ours}.vit.")
        # A method without a moving average has one encoder.
        content[theirs] = _resized(own, spec, encoder) if own else weights_of(encoder)
        if ours == "target_encoder" and own:
            notes.append("`encoder` is the context encoder, `target_encoder` its moving average.")
    predictor, note = _predictor(encoder, model_tensors(checkpoint, "predictor."), spec, record.config)
    if predictor:
        content["predictor"] = predictor
    return content | _progress(record, checkpoint), [*notes, note]


def _resized(weights: dict[str, Tensor], spec: EncoderSpec, encoder: ViTEncoder) -> dict[str, Tensor]:
    """Weights of a run's encoder, with positions for the size that is exported."""
    trained = spec.build()
    trained.vit.load_state_dict(weights)
    resized = trained.resized(encoder.encoder.grid).vit.state_dict()
    return {name: tensor.detach() for name, tensor in resized.items()}


def _predictor(
    encoder: ViTEncoder, own: dict[str, Tensor], spec: EncoderSpec, config: dict[str, Any]
) -> tuple[dict[str, Tensor], str]:
    """The weights of a run's predictor under published names, and a note about them."""
    positions, mask_token = own.pop("positions", None), own.pop("mask_token", None)
    unknown = [name for name in own if name.partition(".")[0] not in _PREDICTOR]
    method = config["method"]
    if unknown or mask_token is None or method != "ijepa":
        why = f"has no place for {unknown[0]}" if unknown else f"is I-JEPA's, and this run's method is {method}"
        return {}, f"The predictor is left out: the published one {why}."
    grid, dim = encoder.encoder.grid, mask_token.shape[0]
    if positions is None:
        where = sincos_positions(grid, dim)[None]
    else:
        where = resample_abs_pos_embed(positions[None], list(grid), list(spec.grid), num_prefix_tokens=0)
    # Readers may tell StoP from I-JEPA by which of these comes first, as in the published files.
    released = config["positions"]["convention"] == "released"
    first = {"mask_token": mask_token.view(1, 1, dim), "predictor_pos_embed": where}
    renamed = dict(reversed(first.items())) if released else first
    for name, tensor in own.items():
        head, _, rest = name.partition(".")
        renamed[f"{_PREDICTOR[head]}.{rest}"] = tensor
    reads, why, other = ("StoP", "A's bias", "I-JEPA") if released else ("I-JEPA", "the mask token", "StoP")
    return renamed, (
        f"The predictor has {config['predictor']['heads']} heads and is read correctly by {reads}'s published code, "
        f"which adds {why} to masked tokens; {other}'s would load it and predict something else."
    )


def _progress(record: Run, checkpoint: Path) -> dict[str, Any]:
    """The progress of the training; None for values that the run does not record."""
    batch_size, samples = record.config["batch_size"], record.environment.get("images")
    step = read_state(checkpoint)["step"]
    last = {name: record.series[name].last if name in record.series else None for name in ("loss", "lr")}
    return {
        "epoch": step * batch_size // samples if samples else None,
        "loss": last["loss"],
        "batch_size": batch_size,
        "world_size": record.environment.get("ranks"),
        "lr": last["lr"],
    }


def _part(encoder: ViTEncoder) -> str:
    """The name of this encoder in the file."""
    return "encoder" if encoder.what.startswith("context ") else "target_encoder"


def _read(encoder: ViTEncoder, path: Path) -> Reader:
    saved = torch.load(path, weights_only=True)[_part(encoder)]
    model = VisionTransformer(**_arguments(encoder)).eval()
    model.load_state_dict({name.removeprefix("module."): tensor for name, tensor in saved.items()})

    def outputs(images: Tensor) -> Outputs:
        return outputs_of_tokens(encoder, model.forward_features(normalized(images, encoder.mean, encoder.std)))

    return outputs


def _arguments(encoder: ViTEncoder) -> dict[str, Any]:
    """I-JEPA's architecture as arguments of timm's VisionTransformer."""
    return {
        "img_size": encoder.image_size,
        "patch_size": encoder.patch_size[0],
        "embed_dim": encoder.dim,
        "depth": encoder.depth,
        "num_heads": heads_of(encoder.encoder.vit),
        "mlp_ratio": encoder.encoder.vit.blocks[0].mlp.fc1.out_features / encoder.dim,
        "class_token": False,
        "global_pool": "",
        "num_classes": 0,
    }


def _load(encoder: ViTEncoder, name: str) -> str:
    return f"weights = torch.load({quoted(name)}, weights_only=True)[{quoted(_part(encoder))}]"


FORMAT = Format(
    library="pytorch",
    suffixes=(".pth.tar", ".pth"),
    check=_check,
    write=_write,
    read=_read,
    load=_load,
    usage="use_official.py.j2",
    usage_facts=lambda encoder: {"arguments": _arguments(encoder)},
)
