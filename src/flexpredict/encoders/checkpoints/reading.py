"""Reads a published checkpoint: its encoder is built from the shapes of the tensors and checked strictly."""

import re
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from flexpredict.encoders.checkpoints.architecture import spec_of
from flexpredict.encoders.checkpoints.config_file import Config, read_config
from flexpredict.encoders.checkpoints.contents import (
    choose_encoder,
    count_left_out,
    encoder_tensors,
    is_needed,
    listed,
    pair_of_encoders,
)
from flexpredict.encoders.checkpoints.predictors import is_stop
from flexpredict.encoders.checkpoints.safe_files import read_tensors
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.errors import UserError, printable
from flexpredict.settings.extraction import Which

_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
_UNKNOWN, _HUGGING_FACE = "state dict of a vision transformer", "weights of Hugging Face transformers"
# Format by the names of tensors; the first pattern that is found decides.
_FORMATS = {
    r"^target_encoder\.": "checkpoint of I-JEPA or StoP",
    r"decoder_embed\.weight": "checkpoint of MAE, with decoder",
    r"embeddings\.patch_embeddings": _HUGGING_FACE,
    r"(^|\.)(rel_pos_bias|attn)\.relative_position_bias_table$": "checkpoint of data2vec-vision or BEiT",
    r"masked_embed": "checkpoint of iBOT",
    r"(^|\.)register_tokens|\.ls1\.gamma": "checkpoint of DINOv2's kind",
    r"(^|\.)(teacher|student)\.": "checkpoint of DINO's kind",
}


def read_checkpoint(
    path: Path,
    *,
    which: Which = "target",
    heads: int | None = None,
    grid: tuple[int, int] | None = None,
    partial: bool = False,
) -> LoadedWeights:
    """Read a checkpoint file, or a folder in the layout of Hugging Face or timm. The options are `EncoderOptions`."""
    shown = printable(str(path))
    file = _weights_file(path)
    config = read_config(file.parent)
    tensors = read_tensors(file)
    prefix, role = choose_encoder(tensors, which, shown)
    inner = encoder_tensors(tensors, prefix)
    _refuse_other_numbers(inner, shown)
    spec = spec_of(
        inner,
        shown,
        heads=config.heads if heads is None else heads,
        grid=grid,
        image_size=config.image_size,
        norm_eps=config.norm_eps,
        mean_pooling=config.mean_pooling,
    )
    loaded = LoadedWeights(
        config.format or _format(tensors),
        role,
        replace(spec, model=config.model or spec.model, options=spec.options | config.options),
        {name: tensor.float() for name, tensor in inner.items() if is_needed(name)},
        everything=tensors,
        decoder_heads=config.decoder_heads,
        left_out=count_left_out(tensors, inner, prefix),
        mean=config.mean,
        std=config.std,
    )
    _, contexts = pair_of_encoders(tensors)
    if role == "target encoder" and len(contexts) == 1:
        context = encoder_tensors(tensors, contexts[0])
        loaded.context = {name: context[name].float() for name in loaded.tensors if name in context}
    loaded.notes += _assumptions(loaded, config, heads)
    stored = {str(tensor.dtype).removeprefix("torch.") for tensor in inner.values() if tensor.is_floating_point()}
    if stored != {"float32"}:
        loaded.notes.append(f"Stored as {' and '.join(sorted(stored))}, used as float32.")
    _check_complete(loaded, shown, partial)
    return loaded


def _weights_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _FILES:
        if (path / name).is_file():
            return path / name
    inside = sorted(entry.name for entry in path.iterdir())
    raise UserError(
        f"{printable(str(path))} is neither a run folder nor a folder of Hugging Face or timm: it holds "
        f"{listed(inside) or 'nothing'}, but no encoder.safetensors, {', '.join(_FILES)}. Name a file."
    )


def _refuse_other_numbers(tensors: dict[str, Tensor], shown: str) -> None:
    """Refuse quantized weights, which mean nothing without their scales."""
    kinds = {
        name: str(tensor.dtype).removeprefix("torch.")
        for name, tensor in tensors.items()
        if not tensor.is_floating_point() and is_needed(name)
    }
    if kinds:
        name, kind = next(iter(kinds.items()))
        raise UserError(
            f"{shown} is refused: {len(kinds)} of its tensors are not floating-point numbers, for example {name} "
            f"({kind}). Give the weights before they were quantized."
        )


def _format(tensors: dict[str, Tensor]) -> str:
    """The format judged by the tensors, for files without a config.json."""
    if any(re.search(r"(^|\.)predictor_embed\.weight", name) for name in tensors):
        return f"checkpoint of {'StoP' if is_stop(tensors) else 'I-JEPA'}"
    found = (words for pattern, words in _FORMATS.items() if any(re.search(pattern, name) for name in tensors))
    return next(found, _UNKNOWN)


def _assumptions(loaded: LoadedWeights, config: Config, heads: int | None) -> list[str]:
    """Sentences about what had to be assumed, as neither tensors nor config.json say it."""
    notes, relative = [], loaded.spec.positions == "relative"
    pixels = "The file does not say how pixels were normalized: ImageNet's mean and standard deviation are used"
    if not config.format and relative:
        notes.append(f"{pixels}, as in BEiT v2. (BEiT v1 had 0.5 and 0.5; a Hugging Face folder would say.)")
    elif not config.format and loaded.format in (_UNKNOWN, _HUGGING_FACE):
        notes.append(f"{pixels}. (Some models of timm had 0.5 and 0.5; a folder with a config.json would say.)")
    if not config.format and "norm_pre.weight" in loaded.tensors:
        notes.append(
            "It has a norm before its blocks, like CLIP, but the file does not give its activation and ε: GELU and "
            "1e-6 are used. A folder with a config.json would say."
        )
    if not heads and not config.heads and not relative:  # a table of relative positions has a column for each head
        notes.append(
            f"{loaded.spec.options['num_heads']} attention heads are the usual number for this width; the file does "
            "not say."
        )
    return notes


def _check_complete(loaded: LoadedWeights, shown: str, partial: bool) -> None:
    """Refuse weights that do not fit the encoder inferred from their shapes, unless `partial`."""
    with torch.device("meta"):
        expected = loaded.spec.build().vit.state_dict()
    wrong = [
        f"{name} is {_shape(loaded.tensors[name])}, not {_shape(tensor)}"
        for name, tensor in expected.items()
        if name in loaded.tensors and loaded.tensors[name].shape != tensor.shape
    ]
    if wrong:
        raise UserError(f"{shown} does not hold one vision transformer: {listed(wrong)}.")
    missing = [name for name in expected if name not in loaded.tensors]
    unexpected = [name for name in loaded.tensors if name not in expected]
    problems = [
        f"{len(names)} tensors {problem} ({listed(names)})"
        for problem, names in (("are missing", missing), ("are left over", unexpected))
        if names
    ]
    if problems and not partial:
        raise UserError(
            f"{shown} ({loaded.format}) is not complete: {' and '.join(problems)}. With partial=true it is loaded "
            "anyway: missing tensors stay as initialized, left-over tensors are not used."
        )
    loaded.notes += [f"Loaded anyway: {words}." for words in problems]
    for name in unexpected:
        del loaded.tensors[name]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))
