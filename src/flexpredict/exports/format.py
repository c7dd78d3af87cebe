"""The interface of export formats, and facts about encoders that several formats need."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from flexpredict.encoders.image_encoder import ImageEncoder, pool
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.runs.run_folder import RunFolder

_BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_LAYERS = ("patch_embed.proj", "norm", *(f"blocks.{layer}" for layer in _BLOCK))  # of I-JEPA's architecture


class Outputs(NamedTuple):
    """The features of images, whichever library computed them."""

    patches: Tensor  # B N D
    pooled: Tensor  # B D


# images: B 3 H W uint8. A reader normalizes them as the exported files say.
Reader = Callable[[Tensor], Outputs]


@dataclass(frozen=True, kw_only=True)
class Format:
    """An export format."""

    library: str  # the library that reads it, by its name on the Hugging Face hub
    suffixes: tuple[str, ...] = ()  # allowed for its file; empty for a folder
    files: tuple[str, ...] = ()  # in its folder, besides the model card
    check: Callable[[ViTEncoder], None] = lambda encoder: None  # refuses an encoder that the format cannot hold
    # Fills the path; the run is for formats that hold more than the encoder. Returns notes for the user, a sentence
    # each.
    write: Callable[[ViTEncoder, Path, RunFolder | None], tuple[str, ...]]
    read: Callable[[ViTEncoder, Path], Reader]  # opens what was written, by the library itself
    load: Callable[[ViTEncoder, str], str]  # a line of code that opens it
    usage: str  # template of code that loads it, and makes `patch_features` and `pooled` of photo.jpg
    usage_facts: Callable[[ViTEncoder], dict[str, Any]] = lambda encoder: {}  # further variables of this template

    @property
    def is_folder(self) -> bool:
        return not self.suffixes


def outputs_of(encoder: ImageEncoder, images: Tensor) -> Outputs:
    """The features that the encoder itself computes, pooled without a model's own pooling head."""
    (tokens,) = encoder.tokens(images)
    return Outputs(tokens.patches, pool(tokens, encoder.pooling, encoder.what))


def outputs_of_tokens(encoder: ViTEncoder, tokens: Tensor) -> Outputs:
    """tokens: B (prefix + N) D, of the last layer, final norm applied."""
    patches = tokens[:, encoder.encoder.vit.num_prefix_tokens :]
    return Outputs(patches, patches.mean(dim=1) if encoder.pooling == "mean" else tokens[:, 0])


def normalized(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """images: B 3 H W uint8 -> pixel_values."""
    return (images / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


def weights_of(encoder: ViTEncoder) -> dict[str, Tensor]:
    """Its weights under timm's names."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.encoder.vit.state_dict().items()}


def is_relative(encoder: ViTEncoder) -> bool:
    """Whether it is a BEiT, with tables of relative positions."""
    return encoder.encoder.positions == "relative"


def has_final_norm(encoder: ViTEncoder) -> bool:
    """Whether it has a final norm; BEiTs that were trained with mean pooling have none."""
    return not isinstance(encoder.encoder.vit.norm, nn.Identity)


def quoted(text: str) -> str:
    """The text as a string literal in code."""
    return json.dumps(text, ensure_ascii=False)


def refuse_other_weights(encoder: ViTEncoder, kind: str, optional: Collection[str] = ()) -> None:
    """Refuse an encoder that has other weights than those of I-JEPA's architecture and the optional ones.

    kind: the architecture of the format, in words; optional: names, those within a block without its number.
    """
    needed = {"pos_embed", *(f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias"))}
    found = {re.sub(r"^blocks\.\d+", "blocks", name) for name in encoder.encoder.vit.state_dict()}
    unknown, missing = sorted(found - needed - set(optional)), sorted(needed - found - set(optional))
    if unknown or missing:
        words = [f"has no place for {', '.join(unknown)}"] if unknown else []
        words += [f"needs {', '.join(missing)}, which it lacks"] if missing else []
        raise UserError(
            f"{encoder.what} cannot be exported for {kind}, which {' and '.join(words)}. Use format=timm, onnx or "
            "torch-export."
        )


def refuse_rectangles(encoder: ViTEncoder, kind: str, formats: str) -> None:
    """Refuse images that are not square, for a library that would resize their positions needlessly.

    kind: the architecture of the format, in words; formats: that remain.
    """
    height, width = encoder.image_size
    if height != width:
        raise UserError(
            f"{encoder.what} would be {kind}, which resizes the positions of images that are not square ({height}x"
            f"{width}) as if they were. Give a square image_size, or use format={formats}."
        )
