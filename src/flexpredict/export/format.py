"""What every format of an exported encoder says of itself, and the pieces that several of them share."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from flexpredict.encoders.frozen import FrozenEncoder, ViTEncoder, pool


class Outputs(NamedTuple):
    """What an encoder makes of images, whoever runs it."""

    patches: Tensor  # B N D
    pooled: Tensor  # B D


# images: B 3 H W uint8. A reader normalises them as the exported files say.
Reader = Callable[[Tensor], Outputs]


@dataclass(frozen=True)
class Format:
    """One way to hand an encoder over.

    Args:
        library: who reads it, by the name that the Hugging Face hub knows.
        suffixes: that its file may have; none for a folder.
        files: of a folder, besides the model card.
        check: refuses an encoder that the format cannot hold.
        write: fills the path; the run folder is for formats that hold more than the encoder. Returns what there is
            to say about it, a sentence each.
        read: opens what was written by the library itself.
        load: a line of code that opens it.
        usage: code that loads it, and makes `patch_features` and `pooled` of photo.jpg.
    """

    library: str
    suffixes: tuple[str, ...]
    files: tuple[str, ...]
    check: Callable[[ViTEncoder], None]
    write: Callable[[ViTEncoder, Path, Path | None], tuple[str, ...]]
    read: Callable[[ViTEncoder, Path], Reader]
    load: Callable[[ViTEncoder, str], str]
    usage: Callable[[ViTEncoder, str], str]

    @property
    def is_folder(self) -> bool:
        return not self.suffixes


def outputs_of(encoder: FrozenEncoder, images: Tensor) -> Outputs:
    """By the encoder itself."""
    (layer,) = encoder.layers(images)
    return Outputs(layer.patches, pool(layer, encoder.pooling, encoder.what))


def pooled_tokens(encoder: ViTEncoder, tokens: Tensor) -> Outputs:
    """tokens: B (prefix + N) D, of the last layer, final norm applied."""
    patches = tokens[:, encoder.encoder.vit.num_prefix_tokens :]
    return Outputs(patches, patches.mean(dim=1) if encoder.pooling == "mean" else tokens[:, 0])


def weights_of(encoder: ViTEncoder) -> dict[str, Tensor]:
    """In timm's names."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in encoder.encoder.vit.state_dict().items()}


def is_relative(encoder: ViTEncoder) -> bool:
    """Whether it is of BEiT's kind, with tables of relative positions."""
    return encoder.encoder.positions == "relative"


def has_final_norm(encoder: ViTEncoder) -> bool:
    """Those of BEiT's kind that were trained to be averaged have none."""
    return not isinstance(encoder.encoder.vit.norm, nn.Identity)


def norm_eps(vit: nn.Module) -> float:
    """The ε of its norms."""
    eps: Any = next(module.eps for module in vit.modules() if hasattr(module, "eps"))
    return float(eps)


def heads_of(encoder: ViTEncoder) -> int:
    """Of its attention; some kinds of block have that within, some are one themselves."""
    block = encoder.encoder.vit.blocks[0]
    return int(next(module.num_heads for module in block.modules() if hasattr(module, "num_heads")))


def quoted(text: str) -> str:
    """As a string in code."""
    return json.dumps(text, ensure_ascii=False)


def pixels_code(encoder: ViTEncoder) -> str:
    """Code for libraries that bring no preprocessing: photo.jpg -> pixel_values, 1 3 H W."""
    height, width = encoder.image_size
    return f"""\
image = ImageOps.fit(Image.open("photo.jpg").convert("RGB"), ({width}, {height}), Image.Resampling.BICUBIC)
mean, std = np.array({list(encoder.mean)}, np.float32), np.array({list(encoder.std)}, np.float32)
pixel_values = ((np.asarray(image, np.float32) / 255 - mean) / std).transpose(2, 0, 1)[None]
"""


def pooling_code(encoder: ViTEncoder, tokens: str) -> str:
    """Code that makes both outputs of the last layer's tokens."""
    prefix = encoder.encoder.vit.num_prefix_tokens
    patches = f"{tokens}[:, {prefix}:]" if prefix else tokens
    pooled = "patch_features.mean(dim=1)" if encoder.pooling == "mean" else f"{tokens}[:, 0]"
    return f"patch_features = {patches}  # 1 N {encoder.dim}\npooled = {pooled}  # 1 {encoder.dim}\n"
