"""Folders of Hugging Face and timm give what their libraries give, by the names and configs of each."""

from pathlib import Path

import pytest
import torch
import transformers
from foreign_models import unsettled
from safetensors.torch import save_file
from small_weights import close, features, hugging_face, last_hidden_state, pixels

import flexpredict
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform

PLAIN = ["IJepa", "ViT", "ViTMAE", "ViTMSN", "Dinov2", "Dinov2 SwiGLU", "Dinov2WithRegisters"]


@pytest.mark.parametrize("kind", PLAIN)
def test_folders_of_hugging_face_agree_with_transformers(kind: str, tmp_path: Path) -> None:
    model = hugging_face(kind)
    model.save_pretrained(tmp_path)
    encoder = flexpredict.load(tmp_path)
    found, token = features(encoder, pixels())
    expected = last_hidden_state(model, pixels())
    close(found, expected[:, -16:])
    if kind != "IJepa":
        close(token, expected[:, 0])
    assert type(model).__name__ in encoder.details[0] and "4 heads" in encoder.details[0]


@pytest.mark.parametrize("kind", ["IJepa", "Dinov2"])
def test_names_of_modules_in_newer_transformers_are_known_too(kind: str, tmp_path: Path) -> None:
    model = hugging_face(kind)
    save_file(model.state_dict(), tmp_path / "renamed.safetensors")  # not what save_pretrained calls them
    encoder = flexpredict.load(tmp_path / "renamed.safetensors", heads=4)
    close(features(encoder, pixels())[0], last_hidden_state(model, pixels())[:, -16:])


def test_pixels_are_normalized_as_the_folder_says(tmp_path: Path) -> None:
    hugging_face("ViT").save_pretrained(tmp_path)
    transformers.ViTImageProcessor(image_mean=[0.5] * 3, image_std=[0.25] * 3).save_pretrained(tmp_path)
    encoder = flexpredict.load(tmp_path)
    images = uniform(sample_keys(5, torch.arange(2)), 3 * 32 * 32).mul(255).byte().view(2, 3, 32, 32)
    with torch.no_grad():
        close(encoder.layers(images)[0], features(encoder, (images / 255 - 0.5) / 0.25)[0])


def test_weights_in_several_files_are_put_together(tmp_path: Path) -> None:
    model = hugging_face("IJepa")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    close(features(flexpredict.load(tmp_path), pixels())[0], last_hidden_state(model, pixels()))


def test_a_folder_of_timm_is_read_by_its_config(tmp_path: Path) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=48, depth=2, num_heads=3, num_classes=0)
    timm.models.save_for_hf(unsettled(model), tmp_path, model_args={"img_size": 32, "embed_dim": 48, "num_heads": 3})
    encoder = flexpredict.load(tmp_path)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 1:])
    assert "timm's vit_tiny_patch16_224" in encoder.details[0] and "3 heads" in encoder.details[0]


@pytest.mark.parametrize("name", ["vit_base_patch32_clip_quickgelu_224", "vit_base_patch32_clip_224"])
def test_the_activation_and_the_norms_of_a_timm_folder_are_its_own(name: str, tmp_path: Path) -> None:
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 2}
    model = unsettled(timm.create_model(name, num_classes=0, **small))
    timm.models.save_for_hf(model, tmp_path, model_args=small)
    with torch.no_grad():
        close(features(flexpredict.load(tmp_path), pixels())[0], model.forward_features(pixels())[:, 1:])


def test_a_timm_folder_of_another_kind_is_opened_by_timm(tmp_path: Path) -> None:
    model = timm.create_model("resnet10t", num_classes=0).eval()
    timm.models.save_for_hf(model, tmp_path)
    images = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    with torch.no_grad():
        assert flexpredict.load(tmp_path).pooled(images).shape == (1, model.num_features)
