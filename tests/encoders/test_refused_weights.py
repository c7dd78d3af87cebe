"""Weights that are not wholly an encoder are refused in words, with what was seen and what would help."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_weights import close, features, hugging_face, pixels, vit

import flexpredict
from flexpredict.errors import UserError


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


def test_a_config_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    hugging_face("ViT").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(UserError, match="relu"):
        flexpredict.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        flexpredict.load(tmp_path)


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
    with pytest.raises(UserError, match="has an invalid value"):
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
