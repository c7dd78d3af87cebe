"""An export that would give other features or overwrite something is refused, and leaves nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import SMALL, saved_model, timm_encoder
from small_encoders import BEIT, KINDS, small
from torch import Tensor

import flexpredict
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports import export, verification
from flexpredict.exports.format import outputs_of


@pytest.mark.parametrize(("form", "name"), [("timm", "x"), ("hf", "x"), ("official", "x.pth")])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_export_that_does_not_agree_leaves_nothing(
    form: str, name: str, earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / name
    if earlier:
        export(small(), form, out)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    module = {"timm": "timm_folder", "hf": "hugging_face_weights", "official": "official"}[form]

    def damaged(encoder: ViTEncoder) -> dict[str, Tensor]:
        weights = {name: tensor.clone() for name, tensor in encoder.encoder.vit.state_dict().items()}
        weights["blocks.1.mlp.fc2.bias"][3] += 0.01
        return weights

    def incomplete(encoder: ViTEncoder) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in damaged(encoder).items() if name != "norm.bias"}

    monkeypatch.setattr(f"flexpredict.exports.{module}.weights_of", damaged)
    with pytest.raises(UserError, match="would give other features: the largest difference is"):
        export(small(), form, out, overwrite=True)
    if form != "hf":
        monkeypatch.setattr(f"flexpredict.exports.{module}.weights_of", incomplete)
        with pytest.raises(UserError, match=r"could not be read back .*norm\.bias"):
            export(small(), form, out, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_features_that_are_not_numbers_do_not_pass() -> None:
    encoder = small()

    def broken(images: Tensor) -> Any:
        return type(wanted)(wanted.patches * float("nan"), wanted.pooled)

    wanted = outputs_of(encoder, verification.shown_images((32, 32)))
    with pytest.raises(UserError, match="other features"):
        verification.verify(encoder, broken, "an export")
    with torch.no_grad():
        encoder.encoder.vit.norm.bias[0] = float("nan")
    with pytest.raises(UserError, match="not numbers"):
        verification.verify(encoder, lambda images: wanted, "an export")


@pytest.mark.parametrize(
    ("form", "options", "words"),
    [
        ("hf", {"options": {"qk_norm": True}}, "IJepaModel, which has no place for blocks.attn.k_norm"),
        ("hf", {"options": {"pre_norm": True}}, "no place for norm_pre"),
        ("hf", {"options": {"init_values": 0.1}}, "layer scales and no class token"),
        ("hf", {"options": {"act_layer": "relu"}}, "activation ReLU"),
        ("hf", KINDS["registers"] | {"image_size": (32, 48)}, "not square"),
        (
            "hf",
            BEIT | {"image_size": (32, 48)},
            "BeitModel, which .* not square .* use format=onnx or torch-export",
        ),
        ("hf", BEIT | {"options": {"scale_mlp": True}}, "BeitModel, which has no place for blocks.mlp.norm"),
        ("timm", BEIT | {"image_size": (32, 48)}, "timm's Beit, which .* not square"),
        ("official", BEIT, "no place for blocks.attn.q_bias"),
        ("official", {"class_token": True}, "no place for cls_token"),
        ("official", {"options": {"init_values": 0.1}}, "blocks.ls1.gamma"),
        ("official", {"options": {"qkv_bias": False}}, "needs blocks.attn.qkv.bias, which it lacks"),
    ],
)
def test_what_a_format_has_no_place_for_is_refused(
    form: str, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        export(small(**options), form, tmp_path / "x.pth")
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_does_not_say_how_it_was_built_is_refused_for_timm(tmp_path: Path) -> None:
    encoder = small()
    encoder.spec = None
    with pytest.raises(UserError, match="does not say from which timm model"):
        export(encoder, "timm", tmp_path / "x")


def test_places_that_hold_something_are_left_alone(tmp_path: Path) -> None:
    folder, file = tmp_path / "x", tmp_path / "x.pt2"
    export(small(), "timm", folder)
    with pytest.raises(UserError, match=r"exists already\. Replace it with overwrite=true"):
        export(small(), "timm", folder)
    export(small(), "timm", folder, overwrite=True, license="mit")
    assert "license: mit" in (folder / "README.md").read_text()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        export(small(), "timm", folder, overwrite=True)
    with pytest.raises(UserError, match=r"ends in .pt2. Use out=.*x/encoder.pt2"):
        export(small(), "torch-export", folder, overwrite=True)
    with pytest.raises(UserError, match=r"Use out=.*model.onnx"):
        export(small(), "onnx", tmp_path / "model")
    file.write_text("mine")
    with pytest.raises(UserError, match=r"is a file\. Name a folder"):
        export(small(), "hf", file, overwrite=True)
    with pytest.raises(UserError, match=r"format=time does not work: it takes .* Did you mean 'timm'"):
        export(small(), "time", tmp_path / "y")
    with pytest.raises(UserError, match="does not divide"):
        export(small(), "timm", tmp_path / "y", image_size=(30, 32))


def test_a_place_that_will_not_do_is_refused_before_the_encoder_is_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Use out=.*model\.onnx"):
        flexpredict.export("nowhere", "onnx", tmp_path / "model")


def test_models_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a plain vision transformer"):
        export(open_encoder("timm:resnet10t,pretrained=no"), "torch-export", tmp_path / "x.pt2")


def test_a_model_that_would_be_taken_for_another_is_refused(tmp_path: Path) -> None:
    encoder = timm_encoder("vit_tiny_patch16_224", **SMALL, patch_size=8, act_layer="relu")
    with pytest.raises(UserError, match=r"As a plain vision transformer, .* would give other features"):
        export(encoder, "timm", tmp_path / "x")
    averaged = timm_encoder("vit_tiny_patch16_224", **SMALL, patch_size=8, global_pool="avg")
    with pytest.raises(UserError, match=r"not a plain vision transformer: norm\.weight is missing"):
        export(averaged, "timm", tmp_path / "x")
    saved_model(tmp_path / "clip", "clip")
    with pytest.raises(UserError, match=r"CLIPVisionModel .* not a plain vision transformer"):
        export(open_encoder(f"hf:{tmp_path / 'clip'}"), "timm", tmp_path / "x")
    assert not (tmp_path / "x").exists()
