"""Encoders of timm give what timm gives, or say why they cannot."""

from pathlib import Path

import pytest
import torch
from foreign_models import SMALL, close, normalized, pictures, timm_encoder, unsettled

from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.errors import UserError
from flexpredict.model.timm_parts import timm

TRANSFORMERS = {
    "class token": ("vit_tiny_patch16_224", {"patch_size": 8, "dynamic_img_size": True}, "class"),
    "no class token": (
        "vit_tiny_patch16_224",
        {"patch_size": 8, "class_token": False, "global_pool": "avg", "dynamic_img_size": True},
        "mean",
    ),
    "registers": ("vit_small_patch14_reg4_dinov2", {"patch_size": 8, "dynamic_img_size": True}, "class"),
    "registers alone": (
        "vit_small_patch14_reg4_dinov2",
        {"patch_size": 8, "class_token": False, "global_pool": "avg", "dynamic_img_size": True},
        "mean",
    ),
    "eva": ("eva02_tiny_patch14_224", {"patch_size": 8, "dynamic_img_size": True}, None),
    "beit": ("beit_base_patch16_224", {"patch_size": 8}, "mean"),
    "relative positions": ("vit_relpos_small_patch16_224", {"patch_size": 8, "class_token": False}, "mean"),
    "distilled": ("deit_tiny_distilled_patch16_224", {"patch_size": 8, "dynamic_img_size": True}, "class"),
}


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_layers_and_vectors_of_a_timm_transformer_are_its_own(kind: str) -> None:
    name, options, pooling = TRANSFORMERS[kind]
    encoder = timm_encoder(name, **SMALL, **options)
    model, images = encoder.model, pictures()
    inputs = normalized(images, model.pretrained_cfg["mean"], model.pretrained_cfg["std"])
    assert (encoder.dim, encoder.depth, encoder.patch_size) == (24, 3, (8, 8))
    assert pooling in (None, encoder.pooling)
    features = model.forward_features(inputs)
    (last,) = encoder.tokens(images)
    close(last.patches, features[:, model.num_prefix_tokens :])
    assert last.patches.shape == (2, 16, 24)
    if options.get("class_token", True):
        assert last.class_token is not None
        close(last.class_token, features[:, 0])
        close(encoder.pooled(images, 2, "class")[:, 24:], features[:, 0])
    else:
        assert last.class_token is None
        with pytest.raises(UserError, match=f"needs a class token, and a small {name} has none"):
            encoder.pooled(images, pooling="class")
    close(encoder.pooled(images), model.forward_head(features, pre_logits=True))
    inner = model.forward_intermediates(
        inputs, indices=[0, 1, 2], norm=True, output_fmt="NLC", intermediates_only=True
    )
    for found, expected in zip(encoder.tokens(images, 3), inner, strict=True):
        close(found.patches, expected)
    two = torch.cat([expected.mean(dim=1) for expected in inner[1:]], dim=1)
    close(encoder.pooled(images, 2, "mean"), two)


@pytest.mark.parametrize("kind", ["class token", "registers", "eva"])
def test_timm_transformers_take_other_sizes_as_timm_does(kind: str) -> None:
    name, options, _ = TRANSFORMERS[kind]
    encoder = timm_encoder(name, **SMALL, **options)
    images = pictures(48, 40)
    cfg = encoder.model.pretrained_cfg
    expected = encoder.model.forward_features(normalized(images, cfg["mean"], cfg["std"]))
    close(encoder.tokens(images)[0].patches, expected[:, encoder.model.num_prefix_tokens :])
    with pytest.raises(UserError, match=r"48x41 cannot be cut into the 8x8 patches .* image_size=48x40"):
        encoder.layers(pictures(48, 41))


def test_a_model_whose_positions_are_fixed_says_so() -> None:
    name, options, _ = TRANSFORMERS["beit"]
    with pytest.raises(UserError, match=r"takes images of 32x32 only, not of 48x48.*Leave image_size out"):
        timm_encoder(name, **SMALL, **options).pooled(pictures(48, 48))


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_cells_of_a_convolutional_network_are_its_patches(name: str) -> None:
    encoder = open_encoder(f"timm:{name},pretrained=no")
    assert isinstance(encoder, TimmEncoder)
    model, images = encoder.model, pictures(64, 96)
    features = model.forward_features(normalized(images))
    (last,) = encoder.tokens(images)
    close(last.patches, features.flatten(2).mT)
    assert last.patches.shape == (2, 6, encoder.dim) and last.class_token is None
    close(encoder.pooled(images), model.forward_head(features, pre_logits=True))
    inner = model.forward_intermediates(normalized(images), indices=2, norm=True, intermediates_only=True)
    close(encoder.pooled(images, 2), torch.cat([cells.mean(dim=(2, 3)) for cells in inner], dim=1))
    assert encoder.pooled(pictures(70, 70)).shape == (2, model.num_features), "no patches that must be filled"


def test_swin_gives_its_own_vector_and_refuses_other_sizes_in_words() -> None:
    model = timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=2,
        embed_dim=12,
        num_heads=(2, 2, 2, 2),
        num_classes=0,
    )
    encoder = TimmEncoder(unsettled(model), "timm:swin", "a small swin", (64, 64)).eval()
    images = pictures(64, 64)
    features = model.forward_features(normalized(images))  # B H W C
    close(encoder.tokens(images)[0].patches, features.flatten(1, 2))
    close(encoder.pooled(images), model.forward_head(features, pre_logits=True))
    with pytest.raises(UserError, match="64x64 only, not of 96x64"):
        encoder.pooled(pictures(96, 64))


def test_a_size_that_fails_inside_the_model_is_refused_in_words() -> None:
    encoder = open_encoder("timm:resnet18,pretrained=no")
    assert isinstance(encoder, TimmEncoder)
    encoder.model.layer4.register_forward_pre_hook(lambda module, inputs: inputs[0].view(2, 256, 14, 14) and None)
    with pytest.raises(UserError, match=r"trained at 224x224 and cannot take images of 64x64 \(shape"):
        encoder.pooled(pictures(64, 64))


def test_attention_pooling_is_a_models_own_way_and_not_a_mean() -> None:
    options = {"patch_size": 8, "class_token": False, "global_pool": "map"}
    encoder = timm_encoder("vit_tiny_patch16_224", **SMALL, **options)
    images = pictures()
    features = encoder.model.forward_features(normalized(images, (0.5,) * 3, (0.5,) * 3))
    close(encoder.pooled(images), encoder.model.forward_head(features, pre_logits=True))
    close(encoder.pooled(images, pooling="mean"), features.mean(dim=1))
    assert (encoder.pooling_in_words(None), encoder.pooling_in_words("mean")) == ("map", "mean")


def test_untrained_weights_are_a_function_of_the_seed_alone() -> None:
    names = [f"timm:test_vit,pretrained=no{seed}" for seed in ("", ",seed=0", ",seed=1")]
    torch.rand(3)
    first, same, other = (open_encoder(name).fingerprint() for name in names)
    assert first == same != other


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:resnet81,pretrained=no", "no model named 'resnet81'. Did you mean 'resnet18'"),
        ("timm:resnet18,pretraind=no", "'pretraind' in .* is not an option. Did you mean 'pretrained'"),
        ("timm:resnet18,pretrained=maybe", "Write it like timm:resnet18,pretrained=no,seed=0"),
        ("timm:resnet18,pretrained=no,seed=x", "Write it like"),
        ("timm:resnet18", "could not be loaded: .*timm:resnet18,pretrained=no is the untrained model"),
        ("timm:densenet121,pretrained=no", "does not give its inner features"),
        ("tim:resnet18", "There is no encoder 'tim:resnet18' .* Did you mean 'timm'"),
        ("hf:", "hf: needs a name"),
        ("hf:nobody/nothing", "hf:nobody/nothing could not be loaded: .*the network is needed"),
        ("runs/none", "There is no encoder 'runs/none'"),
    ],
)
def test_names_that_stand_for_nothing_are_refused_in_words(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UserError, match=f"(?s){message}"):
        open_encoder(name)
