"""Pictures, and the features of an encoder that its export must give for them."""

from pathlib import Path
from typing import Any

import torch
from small_encoders import MEAN, STD
from torch import Tensor

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform


def pictures(count: int = 4, size: tuple[int, int] = (32, 32)) -> Tensor:
    keys = sample_keys(3, torch.arange(count))
    return uniform(keys, 3 * size[0] * size[1]).mul(256).byte().view(count, 3, *size)


def normalized(images: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    return (images / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


@torch.no_grad()
def same(encoder: ViTEncoder, tokens: Tensor, pooled: Tensor, size: tuple[int, int] = (32, 32)) -> None:
    """tokens: of the last layer, prefix tokens first."""
    (layer,) = encoder.tokens(pictures(size=size))
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(tokens[:, -layer.patches.shape[1] :], layer.patches, **close)
    torch.testing.assert_close(pooled, encoder.pooled(pictures(size=size)), **close)


def published(file: Path, part: str, size: tuple[int, int] = (32, 32), patch: int = 8, dim: int = 32) -> Any:
    saved = torch.load(file, weights_only=True)[part]
    assert all(name.startswith("module.") for name in saved)
    model = timm.models.VisionTransformer(
        size, patch, embed_dim=dim, depth=2, num_heads=2, class_token=False, global_pool="", num_classes=0
    )
    model.load_state_dict({name[len("module.") :]: tensor for name, tensor in saved.items()})
    return model.eval()
