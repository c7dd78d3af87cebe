"""What a foreign checkpoint is: its format by what is inside, its encoder by the shapes, and what else it holds."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.checkpoints.architecture import spec_of
from flexpredict.encoders.checkpoints.config_file import Config, read_config
from flexpredict.encoders.checkpoints.hugging_face_names import to_timm_names
from flexpredict.encoders.checkpoints.predictors import is_stop
from flexpredict.encoders.checkpoints.safe_files import read_tensors
from flexpredict.errors import UserError, printable
from flexpredict.model.encoder import Encoder
from flexpredict.runs.encoder_file import EncoderSpec

Which = Literal["target", "context"]

# The embedding of patches is where an encoder begins, in timm's names (which are those of nearly all published code)
# and in those of Hugging Face.
_BEGINNING = re.compile(r"^(|.*\.)(patch_embed\.proj\.weight|embeddings\.patch_embeddings\.projection\.weight)$")
_TARGET_WORDS = {"target_encoder", "teacher", "ema", "model_ema", "state_dict_ema", "momentum_encoder"}
_CONTEXT_WORDS = {"encoder", "context_encoder", "student", "online_encoder", "model", "state_dict"}
# Beside or on top of an encoder; nothing of it is needed for features.
_NOT_ENCODER = re.compile(
    r"^(head|head_dist|fc|fc_norm|mlp_head|pre_logits|pooler|classifier|lm_head|decoder\w*|mask_token|masked_embed|"
    r"cls_pt_layers|predictor\w*|\w+_head)(\.|$)|relative_position_index$"
)
_UNKNOWN, _HUGGING_FACE = "state dict of a vision transformer", "weights of Hugging Face transformers"
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass
class Found:
    """An encoder of another library or paper.

    Args:
        format: whose, in words.
        which: "target encoder", "context encoder", or "encoder" where there is but one.
        spec: how to build it.
        tensors: its weights under timm's names, float32.
        context: those of the context encoder, where the file has both.
        everything: all tensors of the file as they are, for who wants its predictor too.
        decoder_heads: of a masked autoencoder, where files beside tell.
        left_out: tensors that are not of the encoder, counted by what they belong to.
        notes: what was taken for granted, in sentences.
        mean, std: of the pixels it was trained with.
    """

    format: str
    which: str
    spec: EncoderSpec
    tensors: dict[str, Tensor]
    context: dict[str, Tensor] | None = None
    everything: dict[str, Tensor] = field(default_factory=dict)
    decoder_heads: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD

    @property
    def pooling(self) -> Literal["mean", "class"]:
        """How its own head makes one vector of an image: of its class token, unless that was not trained for it."""
        return "class" if self.spec.class_token and self.spec.options.get("global_pool") != "avg" else "mean"

    def in_words(self) -> tuple[str, ...]:
        """What it is and what was left out, a line each."""
        lines = [f"{self.format}, {self.which}: {self.architecture()}"]
        if self.left_out:
            counted = ", ".join(f"{part} ({count})" for part, count in sorted(self.left_out.items()))
            lines.append(f"Left out, with the number of tensors: {counted}")
        return (*lines, *self.notes)

    def architecture(self) -> str:
        """Of the encoder, in words."""
        spec, options = self.spec, self.spec.options
        size = f"{spec.image_size[0]}x{spec.image_size[1]}"
        grid = f"{spec.grid[0]}x{spec.grid[1]}"
        tokens = " with a class token" if spec.class_token else ""
        return (
            f"{options['depth']} layers of {options['embed_dim']}, {options['num_heads']} heads{tokens}; patches of "
            f"{spec.patch_size} in images of {size} ({grid}), "
            f"{'sin-cos' if spec.positions == 'sincos' else spec.positions} positions"
        )


def find(
    path: Path,
    *,
    which: Which = "target",
    heads: int | None = None,
    grid: tuple[int, int] | None = None,
    partial: bool = False,
) -> Found:
    """Read a checkpoint file, or a folder in the layout of Hugging Face or timm.

    Args:
        path: of the file or folder.
        which: of the two encoders of I-JEPA, StoP, DINO and their like.
        heads: attention heads, where shapes and files beside do not tell.
        grid: rows and columns of patches, where the number of positions leaves that open.
        partial: accept it although tensors are missing (they stay as initialised) or left over.
    """
    shown = printable(str(path))
    file = _weights_file(path)
    config = read_config(file.parent)
    tensors = read_tensors(file)
    start, role = _choose(tensors, which, shown)
    inner = _encoder_tensors(tensors, start)
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
    spec = replace(spec, model=config.model or spec.model, options=spec.options | config.options)
    found = Found(
        _format(tensors, config),
        role,
        spec,
        {name: tensor.float() for name, tensor in inner.items() if not _NOT_ENCODER.search(name)},
        everything=tensors,
        decoder_heads=config.decoder_heads,
        left_out=_left_out(tensors, inner, start),
        mean=config.mean,
        std=config.std,
    )
    _, contexts = _pair_of_encoders(tensors)
    if role == "target encoder" and len(contexts) == 1:
        context = _encoder_tensors(tensors, contexts[0])
        found.context = {name: context[name].float() for name in found.tensors if name in context}
    found.notes += _taken_for_granted(found, config)
    if not heads and not config.heads and spec.positions != "relative":  # whose tables have a column for each
        found.notes.append(
            f"{spec.options['num_heads']} attention heads are the usual number for this width; the file does not say."
        )
    stored = {str(tensor.dtype).removeprefix("torch.") for tensor in inner.values() if tensor.is_floating_point()}
    if stored != {"float32"}:
        found.notes.append(f"Stored as {' and '.join(sorted(stored))}, used as float32.")
    _compare(found, shown, partial)
    return found


def build(found: Found) -> Encoder:
    """The encoder with its weights, ready for evaluation."""
    encoder = found.spec.build()
    encoder.vit.load_state_dict(found.tensors, strict=False)  # `find` has compared them and told what it allowed
    return encoder.eval()


def _weights_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _FILES:
        if (path / name).is_file():
            return path / name
    inside = sorted(entry.name for entry in path.iterdir())
    raise UserError(
        f"{printable(str(path))} is neither a run folder nor a folder of Hugging Face or timm: there is none of "
        f"encoder.safetensors, {', '.join(_FILES)} in it, but {_listed(inside) or 'nothing'}. Name a file."
    )


def _choose(tensors: dict[str, Tensor], which: Which, shown: str) -> tuple[str, str]:
    """Where the names of the asked encoder begin, and its part in words."""
    starts = _starts(tensors)
    if not starts:
        raise UserError(
            f"{shown} is of a format that is not known here: nothing in it embeds patches (patch_embed.proj.weight). "
            f"It holds {len(tensors)} tensors, such as {_listed(sorted(tensors))}."
        )
    targets, contexts = _pair_of_encoders(tensors)
    if len(starts) == 1 and which == "target":
        return starts[0], "target encoder" if targets else "encoder"
    chosen = targets if which == "target" else contexts
    if len(chosen) == 1:
        return chosen[0], f"{which} encoder"
    if len(starts) == 1:
        raise UserError(f"There is but one encoder in {shown}. Leave --which out.")
    raise UserError(
        f"There are {len(starts)} encoders in {shown}, and it is not clear which is the {which} encoder: their names "
        f"begin with {_listed([start or 'nothing' for start in starts])}."
    )


def _starts(tensors: dict[str, Tensor]) -> list[str]:
    """Where the names of each encoder in the file begin."""
    return [found.group(1) for found in map(_BEGINNING.match, tensors) if found]


def _pair_of_encoders(tensors: dict[str, Tensor]) -> tuple[list[str], list[str]]:
    """Moving averages, and what they may be averages of: the others that are called so, or else all others."""
    starts = _starts(tensors)
    targets = [start for start in starts if set(start.split(".")) & _TARGET_WORDS]
    others = [start for start in starts if start not in targets] if targets else []
    return targets, [start for start in others if set(start.split(".")) & _CONTEXT_WORDS] or others


def _refuse_other_numbers(tensors: dict[str, Tensor], shown: str) -> None:
    """Quantised weights mean nothing without their scales."""
    kinds = {
        name: str(tensor.dtype).removeprefix("torch.")
        for name, tensor in tensors.items()
        if not tensor.is_floating_point() and not _NOT_ENCODER.search(name)
    }
    if kinds:
        name, kind = next(iter(kinds.items()))
        raise UserError(
            f"{shown} is refused: {len(kinds)} of its tensors are not floating-point numbers, for example {name} "
            f"({kind}). Give the weights before they were quantised."
        )


def _taken_for_granted(found: Found, config: Config) -> list[str]:
    """What neither tensors nor files beside them say, in sentences."""
    notes = []
    if not config.format:
        if found.spec.positions == "relative":
            notes.append(
                "How pixels were normalised, the file does not say: ImageNet's mean and deviation are used, as by "
                "BEiT v2. (BEiT v1 had 0.5 and 0.5; a folder of Hugging Face says it.)"
            )
        elif found.format in (_UNKNOWN, _HUGGING_FACE):
            notes.append(
                "How pixels were normalised, the file does not say: ImageNet's mean and deviation are used. (Some of "
                "timm's have 0.5 and 0.5; the config.json of a folder says it.)"
            )
        if "norm_pre.weight" in found.tensors:
            notes.append(
                "It has a norm before its blocks, like CLIP, whose activation and ε the file does not say: GELU and "
                "1e-6 are used. A folder with a config.json says it."
            )
    return notes


def _encoder_tensors(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    """Those whose names begin so, under timm's names."""
    inner = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    if any(name.startswith("embeddings.") for name in inner):
        inner = to_timm_names(inner)
    # DINOv2's: blocks in chunks, a name of its own for registers, and for its gated MLPs.
    renamed = {re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name): tensor for name, tensor in inner.items()}
    for theirs, ours in (("register_tokens", "reg_token"), (".mlp.w12.", ".mlp.fc1."), (".mlp.w3.", ".mlp.fc2.")):
        renamed = {name.replace(theirs, ours): tensor for name, tensor in renamed.items()}
    _place_class_token(renamed)
    return renamed


def _place_class_token(tensors: dict[str, Tensor]) -> None:
    """Beside registers, DINOv2 gives a position to the class token alone; added to the token, it is the same."""
    registers, positions = tensors.get("reg_token"), tensors.get("pos_embed")
    if registers is None or positions is None or "cls_token" not in tensors:
        return
    side = int((positions.shape[1] - 1) ** 0.5)
    if side * side == positions.shape[1] - 1:
        tensors["cls_token"] = tensors["cls_token"] + positions[:, :1]
        tensors["pos_embed"] = positions[:, 1:]


def _left_out(tensors: dict[str, Tensor], inner: dict[str, Tensor], start: str) -> Counter[str]:
    beside = start.split(".")[0]

    def part(name: str) -> str:
        first, *rest = name.split(".")
        return f"{first}.{rest[0]}" if first == beside and len(rest) > 1 else first

    outside = Counter(part(name) for name in tensors if not name.startswith(start))
    index = "relative_position_index"  # in each block; it follows from the grid
    inside = Counter(
        index if name.endswith(index) else name.split(".")[0] for name in inner if _NOT_ENCODER.search(name)
    )
    return outside + inside


def _format(tensors: dict[str, Tensor], config: Config) -> str:
    if config.format:
        return config.format
    names = list(tensors)

    def has(pattern: str) -> bool:
        return any(re.search(pattern, name) for name in names)

    if has(r"(^|\.)predictor_embed\.weight"):
        return f"checkpoint of {'StoP' if is_stop(tensors) else 'I-JEPA'}"
    if has(r"^target_encoder\."):
        return "checkpoint of I-JEPA or StoP"
    if has(r"decoder_embed\.weight"):
        return "checkpoint of MAE, with decoder"
    if has(r"embeddings\.patch_embeddings"):
        return _HUGGING_FACE
    if has(r"(^|\.)(rel_pos_bias|attn)\.relative_position_bias_table$"):
        return "checkpoint of data2vec-vision or BEiT"
    if has(r"masked_embed"):
        return "checkpoint of iBOT"
    if has(r"(^|\.)register_tokens|\.ls1\.gamma"):
        return "checkpoint of DINOv2's kind"
    if has(r"(^|\.)(teacher|student)\."):
        return "checkpoint of DINO's kind"
    return _UNKNOWN


def _compare(found: Found, shown: str, partial: bool) -> None:
    """Refuse weights that do not fit the encoder that their shapes make, unless told."""
    with torch.device("meta"):
        expected = found.spec.build().vit.state_dict()
    wrong = [
        f"{name} is {_shape(found.tensors[name])}, not {_shape(tensor)}"
        for name, tensor in expected.items()
        if name in found.tensors and found.tensors[name].shape != tensor.shape
    ]
    if wrong:
        raise UserError(f"{shown} does not hold one vision transformer: {_listed(wrong)}.")
    missing = [name for name in expected if name not in found.tensors]
    unexpected = [name for name in found.tensors if name not in expected]
    said = [
        f"{len(names)} tensors {kind} ({_listed(names)})"
        for kind, names in (("are missing", missing), ("are left over", unexpected))
        if names
    ]
    if said and not partial:
        raise UserError(
            f"{shown} is not taken, because of its {found.format} {' and '.join(said)}. With --partial it is taken "
            "all the same: what is missing stays as initialised, what is left over is not used."
        )
    found.notes += [f"Taken all the same: {words}." for words in said]
    for name in unexpected:
        del found.tensors[name]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _listed(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return printable(", ".join(names[:most])) + more
