"""The weights of a timm model that is a plain vision transformer, part by part."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from flexpredict.encoders.checkpoints.architecture import spec_of
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.errors import UserError
from flexpredict.model.encoder import Encoder
from flexpredict.model.relative_encoder import RelativeEncoder
from flexpredict.model.timm_parts import timm


def weights_of_timm(model: Any, name: str, image_size: tuple[int, int]) -> LoadedWeights:
    """The encoder of a plain vision transformer or of a BEiT; any other model is refused.

    name: of the model, for messages; image_size: height and width of its own positions.
    """
    (RelativeEncoder if type(model) is timm.models.beit.Beit else Encoder).check(model)
    weights = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    block = model.blocks[0]
    spec = spec_of(
        weights,
        name,
        heads=next((part.num_heads for part in block.modules() if hasattr(part, "num_heads")), None),
        image_size=image_size,
        norm_eps=next((part.eps for part in block.modules() if hasattr(part, "eps")), 1e-6),
    )
    config = model.pretrained_cfg
    spec = replace(spec, model=config["architecture"])  # shapes do not tell its activation, but its own name does
    with torch.device("meta"):
        needed = spec.build().vit.state_dict()
    wrong = [key for key, tensor in needed.items() if key not in weights or weights[key].shape != tensor.shape]
    if wrong:
        raise UserError(
            f"{name} is not built as the vision transformers here are: {wrong[0]} is missing or has another shape. "
            "It can be evaluated, but neither trained further nor exported."
        )
    return LoadedWeights(
        name,
        "encoder",
        spec,
        {key: weights[key] for key in needed},
        left_out=Counter(key.split(".")[0] for key in weights if key not in needed),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
