"""The predictor in the published checkpoints of I-JEPA and StoP: its names there, and its two conventions."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from flexpredict.errors import UserError

# Published name -> name of `flexpredict.predictor.Predictor`.
PREDICTOR_NAMES = {
    "predictor_embed": "projection",
    "predictor_blocks": "blocks",
    "predictor_norm": "norm",
    "predictor_proj": "output",
}


@dataclass
class PublishedPredictor:
    """g_φ of a published checkpoint.

    Args:
        tensors: under the names of our Predictor.
        dim: its width d_p.
        depth: its blocks.
        convention: "released" is StoP's code: A's bias goes with the noise and m̃ is not used; "paper" is I-JEPA's,
            which adds m̃.
    """

    tensors: dict[str, Tensor]
    dim: int
    depth: int
    convention: Literal["paper", "released"]


def published_predictor(tensors: dict[str, Tensor], where: str) -> PublishedPredictor | None:
    """The predictor among the tensors of a whole checkpoint; None if there is none."""
    ending = "predictor_embed.weight"
    start = next((name.removesuffix(ending) for name in tensors if name.endswith(ending)), None)
    if start is None:
        return None
    published = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    renamed: dict[str, Tensor] = {}
    for name, tensor in published.items():
        head, _, rest = name.partition(".")
        if name == "mask_token":
            renamed[name] = tensor.flatten().float()
        elif head in PREDICTOR_NAMES:
            renamed[f"{PREDICTOR_NAMES[head]}.{rest}"] = tensor.float()
        elif name != "predictor_pos_embed":
            raise UserError(f"The predictor of {where} has a tensor {name}, which I-JEPA's and StoP's do not.")
    depth = 1 + max((int(name.split(".")[1]) for name in renamed if name.startswith("blocks.")), default=-1)
    # Both files have the same tensors, but each code makes them in an order of its own, which dictionaries keep.
    order = [name for name in published if name in ("mask_token", "predictor_pos_embed")]
    convention: Literal["paper", "released"] = "released" if order[:1] == ["predictor_pos_embed"] else "paper"
    return PublishedPredictor(renamed, renamed["projection.weight"].shape[0], depth, convention)
