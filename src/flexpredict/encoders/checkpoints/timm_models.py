"""What a model that timm has opened is made of, in the terms of a checkpoint: from there on, both go the same way."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from flexpredict.encoders.checkpoints.architecture import spec_of
from flexpredict.encoders.checkpoints.finding import Found
from flexpredict.errors import UserError
from flexpredict.model.encoder import Encoder
from flexpredict.model.relative_encoder import RelativeEncoder
from flexpredict.model.timm_parts import timm


def found_in_timm(model: Any, name: str, image_size: tuple[int, int]) -> Found:
    """The encoder of a plain vision transformer or one of BEiT's kind; any other model is refused.

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
            f"{name} is not built as the vision transformers here are: {wrong[0]} is not in it or has another shape. "
            "It can be evaluated, but neither trained further nor exported."
        )
    return Found(
        name,
        "encoder",
        spec,
        {key: weights[key] for key in needed},
        left_out=Counter(key.split(".")[0] for key in weights if key not in needed),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
