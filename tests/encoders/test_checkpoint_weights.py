"""Checkpoints of training scripts give what their own code gives, and say what they are."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_models import unsettled
from reference_vectors import reference_checkpoint, reference_vectors
from safetensors.torch import save_file
from small_weights import close, features, pixels, vit
from torch import Tensor

import flexpredict
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.model.building import build_encoder
from flexpredict.model.positions import sincos_positions

# The authors' own numbers


@pytest.mark.parametrize(("folder", "name"), [("ijepa", "I-JEPA"), ("stop", "StoP")])
@pytest.mark.parametrize("prefix", ["module.", ""])
def test_published_checkpoints_reproduce_their_vectors(folder: str, name: str, prefix: str, tmp_path: Path) -> None:
    saved = torch.load(reference_checkpoint(folder), weights_only=True)
    for part in ("encoder", "target_encoder", "predictor"):
        saved[part] = {prefix + key.removeprefix("module."): tensor for key, tensor in saved[part].items()}
    torch.save(saved, tmp_path / "checkpoint.pth.tar")
    vectors = reference_vectors(folder)

    target = flexpredict.load(tmp_path / "checkpoint.pth.tar", heads=2)
    close(features(target, vectors["images"])[0], vectors["full_features_target_encoder"])
    context = flexpredict.load(tmp_path / "checkpoint.pth.tar", heads=2, which="context")
    assert isinstance(context, ViTEncoder)
    with torch.no_grad():
        seen = context.encoder(vectors["images"], keep=vectors["context"])
    close(seen, vectors["context_features"])
    assert target.details[0].startswith(
        f"checkpoint of {name}, target encoder: 3 layers of 32, 2 heads; patches of 4"
    )
    assert "8x8" in target.details[0] and "sin-cos" in target.details[0]
    assert "predictor (32)" in target.details[1]


# State dicts in timm's names, by themselves and in the wrappings of training scripts


def wrapped(kind: str, state: dict[str, Tensor]) -> Any:
    def prefixed(prefix: str) -> dict[str, Tensor]:
        return {prefix + name: tensor for name, tensor in state.items()}

    other = {name: tensor + 1.0 for name, tensor in state.items()}
    head = {"mlp.0.weight": torch.ones(4, 64), "last_layer.weight_g": torch.ones(3, 1)}
    return {
        "bare": state,
        "ddp": prefixed("module."),
        "model": {"model": state, "epoch": 3, "args": argparse.Namespace(lr=0.1, name="x"), "best": np.float64(0.5)},
        "lightning": {"state_dict": prefixed("backbone."), "optimizer": {0: torch.ones(2)}},
        "dino": {
            "student": {f"module.backbone.{name}": tensor for name, tensor in other.items()},
            "teacher": prefixed("backbone.") | {f"head.{name}": tensor for name, tensor in head.items()},
        },
        "ema": {"model": other, "model_ema": state},
        "classifier": state | {"head.weight": torch.ones(10, 64), "head.bias": torch.ones(10)},
    }[kind]


@pytest.mark.parametrize("kind", ["bare", "ddp", "model", "lightning", "dino", "ema", "classifier"])
@pytest.mark.parametrize("legacy", [False, True])
def test_wrappings_of_training_scripts_are_seen_through(kind: str, legacy: bool, tmp_path: Path) -> None:
    model = vit()
    path = tmp_path / "x.pth"
    torch.save(wrapped(kind, model.state_dict()), path, _use_new_zipfile_serialization=not legacy)
    encoder = flexpredict.load(path)
    found, token = features(encoder, pixels())
    with torch.no_grad():
        expected = model.forward_features(pixels())
    close(found, expected[:, 1:])
    close(token, expected[:, 0])
    assert encoder.pooling == "class"
    if kind == "dino":
        assert "head (2)" in encoder.details[1] and "student" in encoder.details[1]
        other, _ = features(flexpredict.load(path, which="context"), pixels())
        assert not torch.allclose(other, found)


@pytest.mark.parametrize("start", ["teacher", "target_encoder", "ema"])
def test_a_moving_average_alone_is_an_encoder(start: str, tmp_path: Path) -> None:
    model = vit()
    torch.save({start: {f"backbone.{name}": tensor for name, tensor in model.state_dict().items()}}, tmp_path / "x")
    encoder = flexpredict.load(tmp_path / "x")
    assert "target encoder" in encoder.details[0]
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 1:])


def test_what_a_moving_average_is_of_may_have_any_name(tmp_path: Path) -> None:
    model, other = vit(), vit(init_values=None)
    state = {name: tensor + 1 for name, tensor in other.state_dict().items()}
    torch.save({"ema": dict(model.state_dict()), "net": state}, tmp_path / "x.pth")
    target, context = (flexpredict.load(tmp_path / "x.pth", which=which) for which in ("target", "context"))
    assert isinstance(target, ViTEncoder) and isinstance(context, ViTEncoder)
    assert torch.equal(target.encoder.vit.norm.bias + 1, context.encoder.vit.norm.bias)


def test_a_mae_with_its_decoder_is_known_and_the_decoder_left_out(tmp_path: Path) -> None:
    model = vit()
    state = dict(model.state_dict())
    state["pos_embed"] = torch.cat((torch.zeros(1, 64), sincos_positions((4, 4), 64)))[None]
    decoder = {
        "decoder_embed.weight": torch.ones(16, 64),
        "decoder_pos_embed": torch.ones(1, 17, 16),
        "mask_token": torch.ones(1, 1, 16),
        "decoder_blocks.0.norm1.weight": torch.ones(16),
    }
    torch.save({"model": state | decoder}, tmp_path / "mae.pth")
    encoder = flexpredict.load(tmp_path / "mae.pth")
    assert "MAE, with decoder" in encoder.details[0] and "sin-cos" in encoder.details[0]
    model.load_state_dict(state)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 1:])


def test_dinov2_gives_the_class_token_alone_a_position_beside_registers(tmp_path: Path) -> None:
    model = vit(reg_tokens=4, no_embed_class=True, init_values=0.1)
    state = dict(model.state_dict())
    place = torch.full((1, 1, 64), 0.3)
    state["register_tokens"] = state.pop("reg_token")
    state["cls_token"] = state["cls_token"] - place
    state["pos_embed"] = torch.cat((place, state["pos_embed"]), dim=1)
    state["mask_token"] = torch.ones(1, 64)
    torch.save(state, tmp_path / "dinov2.pth")
    encoder = flexpredict.load(tmp_path / "dinov2.pth")
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 5:])
    assert "DINOv2" in encoder.details[0] and "mask_token (1)" in encoder.details[1]


# What shapes tell


VARIANTS: dict[str, dict[str, Any]] = {
    "layer scales": {"init_values": 0.1},
    "registers": {"reg_tokens": 3, "init_values": 0.1, "no_embed_class": True},
    "registers with positions": {"reg_tokens": 3},
    "no class token": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "norms in attention": {"qk_norm": True},
    "norm before": {"pre_norm": True},
    "no bias": {"qkv_bias": False},
    "narrow MLP": {"mlp_ratio": 2.7},
    "non-square": {"img_size": (32, 48), "class_token": False, "global_pool": "avg", "fc_norm": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_architecture_is_read_off_the_shapes(variant: str, tmp_path: Path) -> None:
    model = vit(**VARIANTS[variant])
    save_file(model.state_dict(), tmp_path / "x.safetensors")
    size = (32, 48) if variant == "non-square" else (32, 32)
    encoder = flexpredict.load(tmp_path / "x.safetensors", grid=(4, 6) if variant == "non-square" else None)
    assert encoder.image_size == size
    with torch.no_grad():
        expected = model.forward_features(pixels(*size))[:, model.num_prefix_tokens :]
    close(features(encoder, pixels(*size))[0], expected)
    assert "learned positions" in encoder.details[0]


def test_a_rectangle_of_sines_says_itself_which_one_it_is(tmp_path: Path) -> None:
    model = build_encoder("vit_tiny_patch16_224", (48, 16), 8, options={"embed_dim": 64, "depth": 2, "num_heads": 1})
    torch.save(model.vit.state_dict(), tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth")
    assert encoder.image_size == (48, 16) and "sin-cos" in encoder.details[0]
    with torch.no_grad():
        close(features(encoder, pixels(48, 16))[0], model(pixels(48, 16)))
        close(features(encoder, pixels(16, 48))[0], model(pixels(16, 48)))  # computed anew, not interpolated


@pytest.mark.parametrize("positions", ["sincos", "learned"])
@pytest.mark.parametrize("class_token", [False, True])
def test_an_encoder_for_another_grid_has_positions_of_that_grid(positions: Any, class_token: bool) -> None:
    options = {"embed_dim": 64, "depth": 2, "num_heads": 1}
    encoder = build_encoder(
        "vit_tiny_patch16_224", (32, 32), 8, positions=positions, class_token=class_token, options=options
    )
    unsettled(encoder)
    if positions == "sincos":
        encoder.vit.pos_embed.data = torch.cat((torch.zeros(int(class_token), 64), sincos_positions((4, 4), 64)))[
            None
        ]
    other = encoder.resized((3, 5))
    with torch.no_grad():
        close(other(pixels(24, 40)), encoder(pixels(24, 40)))
    patches = other.vit.pos_embed[0, int(class_token) :]
    if positions == "sincos":
        torch.testing.assert_close(patches, sincos_positions((3, 5), 64))
    else:
        assert patches.shape == (15, 64) and other.vit.pos_embed.requires_grad
    assert encoder.grid == (4, 4) and other.grid == (3, 5)


def test_half_precision_is_used_as_float32_and_said(tmp_path: Path) -> None:
    model = vit().half()
    torch.save(model.state_dict(), tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth")
    assert all(parameter.dtype == torch.float32 for parameter in encoder.parameters())
    assert any("float16" in line for line in encoder.details)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.float().forward_features(pixels())[:, 1:])


# What shapes do not tell


def test_features_of_other_heads_are_other_features(tmp_path: Path) -> None:
    torch.save(vit(num_heads=2).state_dict(), tmp_path / "x.pth")
    prints = {flexpredict.load(tmp_path / "x.pth", heads=heads).fingerprint() for heads in (1, 2, 4)}
    assert len(prints) == 3, "or features that were kept for one would be taken for those of another"


def test_a_grid_that_is_said_beats_the_square_it_could_be(tmp_path: Path) -> None:
    model = vit(img_size=(16, 64), class_token=False, global_pool="avg", fc_norm=False)  # 2x8 patches, as many as 4x4
    torch.save(model.state_dict(), tmp_path / "x.pth")
    assert flexpredict.load(tmp_path / "x.pth").image_size == (32, 32)
    encoder = flexpredict.load(tmp_path / "x.pth", grid=(2, 8))
    with torch.no_grad():
        close(features(encoder, pixels(16, 64))[0], model.forward_features(pixels(16, 64)))
    with pytest.raises(UserError, match=r"do not make a grid of 3x5.*grid=4x16"):
        flexpredict.load(tmp_path / "x.pth", grid=(3, 5))


def test_what_is_taken_for_granted_is_said(tmp_path: Path) -> None:
    torch.save(vit(pre_norm=True).state_dict(), tmp_path / "x.pth")
    said = " ".join(flexpredict.load(tmp_path / "x.pth").details)
    assert "how pixels were normalized" in said and "CLIP" in said and "attention heads are the usual" in said
