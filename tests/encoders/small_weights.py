"""Small random models of timm and transformers, and the features that their weights must give."""

from typing import Any

import torch
import transformers
from foreign_models import unsettled
from torch import Tensor

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import normal, sample_keys

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
}


def pixels(height: int = 32, width: int = 32) -> Tensor:
    """Normalized images, B 3 H W."""
    return normal(sample_keys(3, torch.arange(2)), 3 * height * width).view(2, 3, height, width)


@torch.no_grad()
def features(encoder: Any, images: Tensor) -> tuple[Tensor, Tensor | None]:
    assert isinstance(encoder, ViTEncoder)
    layer = encoder.tokens(images)[0]
    return layer.patches, layer.class_token


def close(found: Tensor | None, expected: Tensor) -> None:
    assert found is not None
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def vit(**options: Any) -> Any:
    return unsettled(
        timm.create_model(
            "vit_base_patch16_224",
            **{
                "img_size": 32,
                "patch_size": 8,
                "embed_dim": 64,
                "depth": 2,
                "num_heads": 1,
                "num_classes": 0,
                **options,
            },
        )
    )


def hugging_face(kind: str) -> Any:
    swiglu = kind == "Dinov2 SwiGLU"
    name = kind.split()[0]
    extra: dict[str, Any] = {"use_swiglu_ffn": True} if swiglu else {}
    if name == "ViTMAE":
        extra = {"mask_ratio": 0.0, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1}
        extra |= {"decoder_num_attention_heads": 2, "decoder_intermediate_size": 32}
    config = getattr(transformers, f"{name}Config")(**SIZES, **extra)
    model_class = "ViTMAEForPreTraining" if name == "ViTMAE" else f"{name}Model"
    return unsettled(getattr(transformers, model_class)(config))


@torch.no_grad()
def last_hidden_state(model: Any, images: Tensor) -> Tensor:
    if hasattr(model, "decoder"):
        model = model.vit
        return model(images, noise=torch.arange(16.0).expand(2, -1)).last_hidden_state
    return model(images).last_hidden_state
