"""Checkpoints of other papers and libraries give what their own code gives, and say what they are."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from foreign_models import unsettled
from reference_vectors import reference_checkpoint, reference_vectors
from safetensors.torch import save_file
from torch import Tensor

import flexpredict
from flexpredict.encoders.checkpoints.reading import read_checkpoint
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.model.building import build_encoder, set_norm_eps
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import normal, sample_keys, uniform

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


def close(found: Tensor | None, expected: Tensor) -> None:
    assert found is not None
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


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


# Hugging Face


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


# BEiT and data2vec-vision


def beit(**options: Any) -> Any:
    sizes: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    return unsettled(
        timm.create_model("beit_base_patch16_224", num_classes=0, **{**sizes, "global_pool": "", **options})
    )


SHARED_TABLE: dict[str, Any] = {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True}
BEITS: dict[str, dict[str, Any]] = {
    "pre-trained": SHARED_TABLE,
    "fine-tuned": {"global_pool": "avg"},
    "absolute positions": {"use_abs_pos_emb": True, "init_values": None},
    "no bias": {"qkv_bias": False, "mlp_ratio": 2.7},
}


@pytest.mark.parametrize("kind", BEITS)
@pytest.mark.parametrize("wrapping", ["", "model", "module"])
def test_checkpoints_of_beit_and_data2vec_are_read(kind: str, wrapping: str, tmp_path: Path) -> None:
    model = beit(**BEITS[kind])
    index = {name: tensor for name, tensor in model.named_buffers() if name.endswith("relative_position_index")}
    besides = {"mask_token": torch.ones(1, 1, 32), "lm_head.weight": torch.ones(5, 32), "lm_head.bias": torch.ones(5)}
    state = {**model.state_dict(), **index, **besides}
    torch.save({wrapping: state, "epoch": 3} if wrapping else state, tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth")
    found, token = features(encoder, pixels())
    with torch.no_grad():
        expected = model.forward_features(pixels())
    close(found, expected[:, 1:])
    close(token, expected[:, 0])
    assert encoder.details[0].startswith("checkpoint of data2vec-vision or BEiT, encoder: 2 layers of 32, 4 heads")
    assert "4x4), relative positions" in encoder.details[0]
    assert f"lm_head (2), mask_token (1), relative_position_index ({len(index)})" in encoder.details[1]
    assert ("fc_norm (2)" in encoder.details[1]) == (kind == "fine-tuned")
    assert "how pixels were normalized" in encoder.details[2]


def test_what_beits_own_head_pools_is_known(tmp_path: Path) -> None:
    for global_pool, pooling in (("", "class"), ("avg", "mean")):
        torch.save(beit(global_pool=global_pool).state_dict(), tmp_path / "x.pth")
        assert read_checkpoint(tmp_path / "x.pth").pooling == pooling


@pytest.mark.parametrize("library", ["Beit", "Data2VecVision"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
def test_beit_and_data2vec_of_hugging_face_are_read_under_all_their_names(
    library: str, shared: bool, head: str, tmp_path: Path
) -> None:
    tables = {"use_relative_position_bias": not shared, "use_shared_relative_position_bias": shared}
    config = getattr(transformers, f"{library}Config")(**SIZES, **tables, use_mask_token=True, use_mean_pooling=False)
    model = unsettled(getattr(transformers, library + head)(config))
    inner = getattr(model, model.base_model_prefix, model)
    model.save_pretrained(tmp_path / "folder")
    save_file(model.state_dict(), tmp_path / "renamed.safetensors")
    for path in (tmp_path / "folder", tmp_path / "renamed.safetensors"):
        encoder = flexpredict.load(path)
        set_norm_eps(encoder, 1e-12)  # which a file by itself does not tell
        found, token = features(encoder, pixels())
        expected = last_hidden_state(inner, pixels())
        close(found, expected[:, 1:])
        close(token, expected[:, 0])
        assert "4 heads" in encoder.details[0] and "mask_token (1)" in encoder.details[1]
    assert library + head in flexpredict.load(tmp_path / "folder").details[0]


def test_a_folder_of_timms_beit_is_read_by_its_config(tmp_path: Path) -> None:
    model = beit(global_pool="avg")
    sizes = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 4}
    timm.models.save_for_hf(model, tmp_path, model_args=sizes)
    encoder = flexpredict.load(tmp_path)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 1:])
    assert "timm's beit_base_patch16_224" in encoder.details[0] and encoder.mean == (0.5, 0.5, 0.5)


def test_a_rectangle_of_relative_positions_is_told_by_its_grid(tmp_path: Path) -> None:
    model = beit(img_size=(24, 56), **SHARED_TABLE)
    torch.save(model.state_dict(), tmp_path / "x.pth")
    with pytest.raises(UserError, match="grid=4x16"):
        flexpredict.load(tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth", grid=(3, 7))
    with torch.no_grad():
        close(features(encoder, pixels(24, 56))[0], model.forward_features(pixels(24, 56))[:, 1:])


def test_what_is_not_wholly_a_beit_is_refused(tmp_path: Path) -> None:
    state, table = beit().state_dict(), "blocks.0.attn.relative_position_bias_table"
    cases: dict[str, tuple[Any, str]] = {
        "no norm": ({name: state[name] for name in state if not name.startswith("norm.")}, "norm.weight"),
        "no class token": ({name: state[name] for name in state if name != "cls_token"}, "cls_token"),
        "no table in a block": ({name: state[name] for name in state if name != table.replace("0", "1")}, "blocks.1"),
        "a flat table": (state | {table: torch.ones(52)}, "displacements times heads"),
        "other heads": (state | {table.replace("0", "1"): torch.ones(52, 2)}, "is 52x2, not 52x4"),
        "left over": (state | {"blocks.0.attn.k_bias": torch.ones(32)}, "1 tensors are left over"),
    }
    for name, (content, message) in cases.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(UserError, match=message):
            flexpredict.load(tmp_path / name)
    torch.save(state, tmp_path / "whole")
    with pytest.raises(UserError, match="52x4, not 52x2"):
        flexpredict.load(tmp_path / "whole", heads=2)


# MAE


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


# Strictness


@pytest.mark.parametrize("name", ["norm.weight", "blocks.1.attn.proj.bias", "pos_embed"])
def test_a_missing_tensor_is_named_and_refused(name: str, tmp_path: Path) -> None:
    state = dict(vit().state_dict())
    del state[name]
    torch.save(state, tmp_path / "x.pth")
    with pytest.raises(UserError, match=name):
        flexpredict.load(tmp_path / "x.pth")


def test_tensors_left_over_are_named_and_refused_unless_told(tmp_path: Path) -> None:
    model = vit()
    torch.save(dict(model.state_dict()) | {"blocks.0.attn.temperature": torch.ones(1)}, tmp_path / "x.pth")
    with pytest.raises(UserError, match=r"1 tensors are left over \(blocks.0.attn.temperature\)"):
        flexpredict.load(tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth", partial=True)
    assert any("blocks.0.attn.temperature" in line for line in encoder.details)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 1:])


def test_half_precision_is_used_as_float32_and_said(tmp_path: Path) -> None:
    model = vit().half()
    torch.save(model.state_dict(), tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth")
    assert all(parameter.dtype == torch.float32 for parameter in encoder.parameters())
    assert any("float16" in line for line in encoder.details)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.float().forward_features(pixels())[:, 1:])


def test_heads_that_shapes_do_not_tell_must_be_said(tmp_path: Path) -> None:
    torch.save(vit(embed_dim=24, num_heads=2).state_dict(), tmp_path / "x.pth")
    with pytest.raises(UserError, match="heads=12"):
        flexpredict.load(tmp_path / "x.pth")
    with pytest.raises(UserError, match="5 heads do not divide"):
        flexpredict.load(tmp_path / "x.pth", heads=5)
    assert "2 heads" in flexpredict.load(tmp_path / "x.pth", heads=2).details[0]


def test_what_cannot_be_an_encoder_is_refused_with_what_was_seen(tmp_path: Path) -> None:
    cases: dict[str, tuple[Any, str]] = {
        "resnet": ({"conv1.weight": torch.ones(4, 3, 7, 7), "fc.weight": torch.ones(2, 4)}, "such as conv1.weight"),
        "number": ({"epoch": 3}, "holds no tensors"),
        "gray": ({**vit().state_dict(), "patch_embed.proj.weight": torch.ones(64, 1, 8, 8)}, "1 channels"),
        "two": ({"a": vit().state_dict(), "b": vit().state_dict()}, "There are 2 encoders"),
        "part": ({"patch_embed.proj.weight": torch.ones(64, 3, 8, 8)}, "another architecture, or a part"),
        "mixed": (
            {**vit().state_dict(), "blocks.1.norm1.weight": torch.ones(7)},
            "blocks.1.norm1.weight is 7, not 64",
        ),
        "rectangle": (vit(img_size=(32, 56)).state_dict(), "grid=4x16"),
    }
    for name, (content, message) in cases.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(UserError, match=message):
            flexpredict.load(tmp_path / name)
    torch.save(vit().state_dict(), tmp_path / "one")
    with pytest.raises(UserError, match="only one encoder"):
        flexpredict.load(tmp_path / "one", which="context")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("hello")
    with pytest.raises(UserError, match=r"notes\.txt"):
        flexpredict.load(tmp_path / "folder")


def test_a_config_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    hugging_face("ViT").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(UserError, match="relu"):
        flexpredict.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        flexpredict.load(tmp_path)


# What shapes do not tell


def test_features_of_other_heads_are_other_features(tmp_path: Path) -> None:
    torch.save(vit(num_heads=2).state_dict(), tmp_path / "x.pth")
    prints = {flexpredict.load(tmp_path / "x.pth", heads=heads).fingerprint() for heads in (1, 2, 4)}
    assert len(prints) == 3, "or features that were kept for one would be taken for those of another"


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


@pytest.mark.parametrize("kind", [torch.int8, torch.complex64])
def test_numbers_that_are_no_weights_are_refused(kind: torch.dtype, tmp_path: Path) -> None:
    torch.save({name: tensor.to(kind) for name, tensor in vit().state_dict().items()}, tmp_path / "x.pth")
    with pytest.raises(UserError, match="not floating-point"):
        flexpredict.load(tmp_path / "x.pth")


def test_odd_shapes_and_heads_are_refused_in_words(tmp_path: Path) -> None:
    for name, tensor in (
        ("pos_embed", torch.ones(17)),
        ("patch_embed.proj.weight", torch.ones(64)),
        ("blocks.0.mlp.fc1.weight", torch.tensor(1.0)),
        ("blocks.99999999.norm1.weight", torch.ones(64)),
    ):
        torch.save({**vit().state_dict(), name: tensor}, tmp_path / "x.pth")
        with pytest.raises(UserError, match=r"dimensions|are missing"):
            flexpredict.load(tmp_path / "x.pth")
    torch.save(vit().state_dict(), tmp_path / "x.pth")
    for heads in (0, -3):
        with pytest.raises(UserError, match=r"heads=.* is out of range: it must be at least 1"):
            flexpredict.load(tmp_path / "x.pth", heads=heads)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"image_size": None}),
        ("config.json", {"num_attention_heads": "many"}),
        ("preprocessor_config.json", {"image_mean": 0.5}),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(file: str, change: dict[str, Any], tmp_path: Path) -> None:
    hugging_face("ViT").save_pretrained(tmp_path)
    path = tmp_path / file
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | change))
    with pytest.raises(UserError, match="cannot be"):
        flexpredict.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"no_such": 1}},
        {"image_size": None},
        {"options": {"checkpoint_path": "/etc/passwd"}},
        {"model": 3},
    ],
)
def test_a_header_of_our_own_that_makes_no_sense_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    spec = {"model": "vit_tiny_patch16_224", "image_size": [32, 32], "patch_size": 8, "positions": "sincos"}
    header = {"flexpredict": json.dumps({"encoder": spec | change})}
    save_file({"x": torch.ones(1)}, tmp_path / "encoder.safetensors", header)
    with pytest.raises(UserError):
        flexpredict.load(tmp_path / "encoder.safetensors")
    save_file({"x": torch.ones(1)}, tmp_path / "encoder.safetensors", {"flexpredict": "{"})
    with pytest.raises(UserError):
        flexpredict.load(tmp_path / "encoder.safetensors")
