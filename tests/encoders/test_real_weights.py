"""A real pre-trained encoder, where one lies beside the repository: DINOv2 ViT-S/14 under Meta's names, float16."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import flexpredict
from flexpredict.data.pixels import MEAN, STD
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform

_FOUND = [
    folder / "shared" / "weights" / "dinov2_vits14_fp16.safetensors"
    for folder in Path(__file__).resolve().parents
    if (folder / "shared" / "weights" / "dinov2_vits14_fp16.safetensors").is_file()
]


@pytest.mark.skipif(not _FOUND, reason="no shared/weights beside the repository")
@torch.no_grad()
def test_features_of_dinov2_are_those_of_timms_model_with_the_same_weights() -> None:
    encoder = flexpredict.load(_FOUND[0])
    assert encoder.details[0].startswith(
        "checkpoint of DINOv2's kind, encoder: 12 layers of 384, 6 heads with a class"
    )
    assert (encoder.patch_size, encoder.image_size, encoder.pooling) == ((14, 14), (518, 518), "class")
    model = timm.create_model("vit_small_patch14_dinov2", pretrained=False, dynamic_img_size=True).eval()
    weights = {name: tensor.float() for name, tensor in load_file(_FOUND[0]).items() if name != "mask_token"}
    model.load_state_dict(weights, strict=True)
    images = uniform(sample_keys(1, torch.arange(2)), 3 * 224 * 224).mul(255).byte().view(2, 3, 224, 224)
    pixels = (images / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    expected = model.forward_features(pixels)
    torch.testing.assert_close(encoder(images), expected[:, 1:], atol=1e-4, rtol=0)
    torch.testing.assert_close(encoder.pooled(images), expected[:, 0], atol=1e-4, rtol=0)
    inner = model.get_intermediate_layers(pixels, 4, norm=True)
    for found, layer in zip(encoder.layers(images, 4), inner, strict=True):
        torch.testing.assert_close(found, layer, atol=1e-4, rtol=1e-5)  # some of its features are larger than 10


@pytest.mark.skipif(not _FOUND, reason="no shared/weights beside the repository")
def test_a_photo_is_encoded_at_the_size_it_was_trained_at() -> None:
    photo = Image.new("RGB", (640, 480), (200, 30, 90))
    assert flexpredict.load(_FOUND[0]).pooled(photo).numpy().shape == (1, 384)
