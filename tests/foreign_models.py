"""Small random models of timm and transformers, and images for them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import normal, sample_keys, uniform

SMALL = {"embed_dim": 24, "depth": 3, "num_heads": 2, "num_classes": 0}
SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
HUGGING_FACE: dict[str, tuple[str, dict[str, Any], int, str]] = {  # class, options, tokens before patches, pooling
    "ijepa": ("IJepa", {"intermediate_size": 48}, 0, "mean"),
    "vit": ("ViT", {"intermediate_size": 48}, 1, "class"),
    "dinov2": ("Dinov2", {}, 1, "class"),
    "dinov2 with registers": ("Dinov2WithRegisters", {"num_register_tokens": 4}, 5, "class"),
    "data2vec": ("Data2VecVision", {"intermediate_size": 48}, 1, "mean"),
    "beit": ("Beit", {"intermediate_size": 48, "use_mean_pooling": False}, 1, "class"),
    "beit, relative": ("Beit", {"intermediate_size": 48, "use_relative_position_bias": True}, 1, "mean"),
    "dinov3": ("DINOv3ViT", {"intermediate_size": 48, "num_register_tokens": 4}, 5, "class"),
    "clip": ("CLIPVision", {"intermediate_size": 48}, 1, "class"),
}


def unsettled(model: Any) -> Any:
    """Weights that no symmetry or zero of the initialization makes equal to others. Fixed positions stay."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                parameter.add_(0.05 * normal(torch.tensor(number), parameter.numel()).view_as(parameter))
    return model.eval()


def timm_encoder(name: str, size: int = 32, **options: Any) -> TimmEncoder:
    model = unsettled(timm.create_model(name, img_size=size, **options))
    return TimmEncoder(model, f"timm:{name}", f"a small {name}", (size, size)).eval()


def saved_model(folder: Path, kind: str, **more: Any) -> Any:
    """A random model as its library saves it."""
    transformers = pytest.importorskip("transformers")
    name, options, _, _ = HUGGING_FACE[kind]
    if not hasattr(transformers, f"{name}Model"):
        pytest.skip(f"this version of transformers has no {name}")
    config = getattr(transformers, f"{name}Config")(**SIZES, **options, **more)
    model = unsettled(getattr(transformers, f"{name}Model")(config))
    model.save_pretrained(folder)
    return model


def pictures(height: int = 32, width: int = 32, count: int = 2) -> Tensor:
    return uniform(sample_keys(5, torch.arange(count)), 3 * height * width).mul(255).byte().view(-1, 3, height, width)


def normalized(images: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    """Written independently: first to [0, 1], then by mean and deviation."""
    return (images / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
