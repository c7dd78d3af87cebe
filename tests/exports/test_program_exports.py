"""Exported programs, for ONNX and torch.export, give the same features for any number of images."""

import json
from pathlib import Path

import onnxruntime
import pytest
import torch
from same_features import normalized, pictures
from small_encoders import BEIT, KINDS, MEAN, STD, small

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.exports import export, programs, verification
from flexpredict.exports.format import outputs_of


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> tuple[ViTEncoder, Path]:
    encoder = small(image_size=(16, 32), class_token=True, pooling="class")
    return encoder, export(encoder, "onnx", tmp_path_factory.mktemp("onnx") / "x.onnx").out


def test_onnxruntime_gives_the_same_features_for_other_numbers_of_images(onnx: tuple[ViTEncoder, Path]) -> None:
    encoder, file = onnx
    assert sorted(path.name for path in file.parent.iterdir()) == ["x.onnx", "x.onnx.README.md"]
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    facts = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert (facts["mean"], facts["std"], facts["image_size"]) == (list(MEAN), list(STD), [16, 32])
    for count in (1, 5):
        images = pictures(count, (16, 32))
        patches, pooled = session.run(["patch_features", "pooled"], {"pixel_values": normalized(images).numpy()})
        wanted = outputs_of(encoder, images)
        torch.testing.assert_close(torch.from_numpy(patches), wanted.patches.detach(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(torch.from_numpy(pooled), wanted.pooled.detach(), atol=1e-5, rtol=1e-5)


def test_without_onnxruntime_the_reference_evaluator_reads_the_file(
    onnx: tuple[ViTEncoder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_has_runtime", lambda: False)
    difference = verification.verify(onnx[0], programs.ONNX.read(*onnx), "an export")
    assert difference.relative < 1e-5


def test_a_torch_program_gives_the_same_features_for_other_numbers_of_images(tmp_path: Path) -> None:
    encoder = small(**KINDS["registers"])
    made = export(encoder, "torch-export", tmp_path / "x.pt2", image_size=(32, 16))
    program = torch.export.load(made.out).module()
    for count in (1, 5):
        patches, pooled = program(normalized(pictures(count, (32, 16))))
        wanted = outputs_of(encoder, pictures(count, (32, 16)))
        torch.testing.assert_close(patches, wanted.patches, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(pooled, wanted.pooled, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", ["onnx", "torch-export"])
def test_a_traced_beit_gives_the_same_features_on_a_rectangle(form: str, tmp_path: Path) -> None:
    options = {"use_shared_rel_pos_bias": True, "use_abs_pos_emb": True, "depth": 1}
    encoder = small(**BEIT, options=options, image_size=(16, 24))
    out = export(encoder, form, tmp_path / ("x.onnx" if form == "onnx" else "x.pt2")).out
    inputs = normalized(pictures(5, (16, 24)))
    if form == "onnx":
        session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
        found = [torch.from_numpy(array) for array in session.run(None, {"pixel_values": inputs.numpy()})]
    else:
        found = torch.export.load(out).module()(inputs)
    with torch.no_grad():
        tokens = encoder.encoder.vit.forward_features(inputs)  # timm's own
    for one, other in zip(found, (tokens[:, 1:], tokens[:, 1:].mean(dim=1)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
