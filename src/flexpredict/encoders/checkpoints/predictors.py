"""The other half of published checkpoints: the predictor of I-JEPA and StoP, the decoder of MAE.

Both become a `flexpredict.model.predictor.Predictor`, so that pre-training continues where it stopped.
"""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from flexpredict.encoders.checkpoints.architecture import is_sincos
from flexpredict.encoders.checkpoints.hugging_face_names import to_timm_names
from flexpredict.errors import UserError

# Published name -> name in our Predictor.
PREDICTOR_NAMES = {
    "predictor_embed": "projection",
    "predictor_blocks": "blocks",
    "predictor_norm": "norm",
    "predictor_proj": "output",
}
_POSITIONS = "predictor_pos_embed"
_DECODER_NAMES = {
    "decoder_embed": "projection",
    "decoder_blocks": "blocks",
    "decoder_norm": "norm",
    "decoder_pred": "output",
}


@dataclass
class PublishedPredictor:
    """g_φ of a published checkpoint."""

    method: Literal["ijepa", "mae"]  # the method it belongs to
    tensors: dict[str, Tensor]  # under the names of our Predictor
    dim: int  # width d_p
    depth: int  # number of blocks
    heads: int | None = None  # attention heads, if known; by default as many as the encoder's
    # "released" is StoP's code, where A's bias is added to the noise and m̃ is not used; "paper" is I-JEPA's, which
    # adds m̃.
    convention: Literal["paper", "released"] = "paper"


def published_predictor(
    tensors: dict[str, Tensor], grid: tuple[int, int], where: str, decoder_heads: int | None = None
) -> PublishedPredictor | None:
    """The predictor or decoder among the tensors of a whole checkpoint; None if there is none."""
    inner = _below(tensors, "predictor_embed.weight")
    if inner:
        renamed = _renamed(inner, PREDICTOR_NAMES, _POSITIONS, grid, where)
        dim, depth = _sizes(renamed)
        return PublishedPredictor("ijepa", renamed, dim, depth, None, "released" if is_stop(tensors) else "paper")
    inner = _below(tensors, "decoder_embed.weight")
    if inner:
        # Hugging Face's names; transformers 5 writes the second.
        names = [name for name in inner if name.startswith(("decoder_layers.", "decoder_encoder."))]
        layers = to_timm_names({name.removeprefix("decoder_"): inner.pop(name) for name in names})
        inner |= {f"decoder_{name}": tensor for name, tensor in layers.items()}
        inner = {name: tensor for name, tensor in inner.items() if name.startswith(("decoder_", "mask_token"))}
        renamed = _renamed(inner, _DECODER_NAMES, "decoder_pos_embed", grid, where)
        dim, depth = _sizes(renamed)
        return PublishedPredictor("mae", renamed, dim, depth, decoder_heads or (16 if dim == 512 else None))
    return None


def is_stop(tensors: dict[str, Tensor]) -> bool:
    """Whether a predictor is StoP's rather than I-JEPA's.

    Both files have the same tensors, but in a different order, which dictionaries keep.
    """
    order = [name for name in _below(tensors, "predictor_embed.weight") if name in ("mask_token", _POSITIONS)]
    return order[:1] == [_POSITIONS]


def _below(tensors: dict[str, Tensor], ending: str) -> dict[str, Tensor]:
    """Tensors with the same prefix as the one with this ending, in their order."""
    start = next((name.removesuffix(ending) for name in tensors if name.endswith(ending)), None)
    if start is None:
        return {}
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _renamed(
    published: dict[str, Tensor], names: dict[str, str], positions: str, grid: tuple[int, int], where: str
) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    for name, tensor in published.items():
        head, _, rest = name.partition(".")
        if name == "mask_token":
            renamed[name] = tensor.flatten().float()
        elif name == positions:
            _check_positions(tensor[0], grid, where)
        elif head in names:
            renamed[f"{names[head]}.{rest}"] = tensor.float()
        else:
            raise UserError(
                f"{where} has a tensor {name}, which no published predictor has. Save its encoder to a separate file "
                "and start from that."
            )
    return renamed


def _check_positions(positions: Tensor, grid: tuple[int, int], where: str) -> None:
    """Refuse positions that are not sines and cosines: here they are computed, not read."""
    if not is_sincos(positions, grid, len(positions) - math.prod(grid)):
        raise UserError(
            f"The positions of the predictor in {where} are not the sines and cosines that were published."
        )


def _sizes(renamed: dict[str, Tensor]) -> tuple[int, int]:
    depth = 1 + max((int(name.split(".")[1]) for name in renamed if name.startswith("blocks.")), default=-1)
    return renamed["projection.weight"].shape[0], depth
