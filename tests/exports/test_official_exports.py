"""Exports in the format of the published checkpoints: their own code reads all the weights, or they are left out."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from same_features import normalized, pictures, published, same
from small_encoders import small

from flexpredict.encoders.checkpoints.predictors import published_predictor
from flexpredict.encoders.opening import open_encoder
from flexpredict.exports import export


def test_an_encoder_alone_is_both_encoders_of_a_published_file(tmp_path: Path) -> None:
    encoder = small()
    made = export(encoder, "official", tmp_path / "x.pth.tar")
    saved = torch.load(made.out, weights_only=True)
    assert set(saved) == {
        "encoder", "target_encoder", "epoch", "loss", "batch_size", "world_size", "lr", "opt", "scaler"
    }  # fmt: skip
    for part in ("encoder", "target_encoder"):
        tokens = published(made.out, part).forward_features(normalized(pictures())).detach()
        same(encoder, tokens, tokens.mean(dim=1))


@pytest.mark.parametrize("convention", ["paper", "released"])
def test_a_published_file_of_a_run_holds_all_its_weights(
    convention: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    run = runs[convention]
    made = export(open_encoder(run), "official", tmp_path / "x.pth.tar")
    saved = torch.load(made.out, weights_only=True)
    trained = load_file(run / "checkpoints" / "last" / "model.safetensors")
    images = pictures()
    for part, which in (("encoder", "context"), ("target_encoder", "target")):
        encoder = open_encoder(run, which=which)
        inputs = normalized(images, encoder.mean, encoder.std)
        tokens = published(made.out, part, patch=4, dim=24).forward_features(inputs).detach()
        same(encoder, tokens, tokens.mean(dim=1))
    predictor = {name.removeprefix("module."): tensor for name, tensor in saved["predictor"].items()}
    order = ["mask_token", "predictor_pos_embed"]
    assert list(predictor)[:2] == (order if convention == "paper" else order[::-1])
    assert predictor["predictor_pos_embed"].shape == (1, 64, 16)
    torch.testing.assert_close(predictor["mask_token"], trained["predictor.mask_token"].view(1, 1, 16))
    pairs = {
        "predictor_embed.weight": "projection.weight",
        "predictor_blocks.1.attn.qkv.bias": "blocks.1.attn.qkv.bias",
        "predictor_norm.bias": "norm.bias",
        "predictor_proj.weight": "output.weight",
    }
    for theirs, ours in pairs.items():
        assert torch.equal(predictor[theirs], trained[f"predictor.{ours}"])
    read = published_predictor(
        {f"predictor.{name}": tensor for name, tensor in saved["predictor"].items()}, (8, 8), ""
    )
    assert read is not None and read.convention == convention
    for name, tensor in read.tensors.items():
        assert torch.equal(tensor, trained[f"predictor.{name}"])
    assert len(predictor) == 1 + sum(name.startswith("predictor.") for name in trained)
    assert (saved["batch_size"], saved["world_size"], saved["opt"], saved["scaler"]) == (8, 1, {}, None)
    assert saved["epoch"] == 0 and saved["loss"] > 0 and saved["lr"] > 0
    reader = {"paper": "I-JEPA's published code", "released": "StoP's published code"}[convention]
    assert any(f"read correctly by {reader}" in note for note in made.notes)


def test_a_predictor_that_the_published_code_would_misread_is_left_out(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["paper"], run, symlinks=True)
    config = (run / "config.yaml").read_text()
    assert "method: ijepa" in config
    (run / "config.yaml").write_text(config.replace("method: ijepa", "method: mae"))
    made = export(open_encoder(run), "official", tmp_path / "x.pth")
    assert "predictor" not in torch.load(made.out, weights_only=True)
    assert any("left out" in note and "mae" in note for note in made.notes)
    shutil.rmtree(run / "checkpoints")
    made = export(open_encoder(run), "official", tmp_path / "x.pth", overwrite=True)
    assert any("there is no predictor" in note for note in made.notes)


def test_a_published_file_of_a_run_at_another_size_has_positions_for_it(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    out = export(open_encoder(runs["paper"]), "official", tmp_path / "x.pth", image_size=(16, 40)).out
    saved = torch.load(out, weights_only=True)
    assert saved["predictor"]["module.predictor_pos_embed"].shape == (1, 40, 16)
    encoder = open_encoder(runs["paper"], which="context")
    inputs = normalized(pictures(size=(16, 40)), encoder.mean, encoder.std)
    tokens = published(out, "encoder", (16, 40), 4, 24).forward_features(inputs).detach()
    same(encoder, tokens, tokens.mean(dim=1), (16, 40))
