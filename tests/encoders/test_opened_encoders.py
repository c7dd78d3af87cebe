"""A run gives both of its encoders; and what holds for every encoder, whatever library it is from."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import SMALL, close, normalized, pictures, saved_model, timm_encoder
from tiny import RECIPE

from flexpredict import pretrain
from flexpredict.encoders.hugging_face_encoder import HuggingFaceEncoder
from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError
from flexpredict.runs.checkpoint import model_tensors
from flexpredict.runs.encoder_file import read_encoder


def test_a_run_gives_its_target_encoder_and_on_demand_its_context_encoder(finished: Path) -> None:
    from safetensors.torch import load_file

    target, context = open_encoder(finished), open_encoder(finished, which="context")
    assert target.what == f"target encoder of {finished} after step 18"
    assert context.what == f"context encoder of {finished} after step 18"
    weights = load_file(finished / "checkpoints" / "last" / "model.safetensors")
    for encoder, which in ((target, "target"), (context, "context")):
        reference = read_encoder(finished).encoder
        own = {key.removeprefix(f"{which}_encoder.vit."): value for key, value in weights.items()}
        reference.vit.load_state_dict(own, strict=False)
        images = pictures(32, 40)
        close(encoder.tokens(images)[0].patches, reference(normalized(images)))
    assert target.fingerprint() != context.fingerprint()


def test_an_encoder_file_is_the_target_encoder_and_has_no_other(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    shutil.copy(finished / "encoder.safetensors", file)
    encoder = open_encoder(file)
    assert encoder.what == f"target encoder of {file} after step 18"
    assert encoder.fingerprint() == open_encoder(finished).fingerprint()
    with pytest.raises(UserError, match="which=context needs a checkpoint of a run"):
        open_encoder(file, which="context")
    (tmp_path / "no_run").mkdir()
    with pytest.raises(UserError, match="neither a run folder nor"):
        open_encoder(tmp_path / "no_run")


def test_the_untrained_encoder_of_a_run_is_the_one_that_it_began_with(tmp_path: Path) -> None:
    begins = {**RECIPE, "epochs": 1, "seed": 3, "embedding_scale": 0.5, "on_nan": "rollback", "keep_last": 9}
    pretrain("scenes:16,size=32", tmp_path / "run", **begins)
    began = model_tensors(tmp_path / "run" / "checkpoints" / "step-0", "target_encoder.vit.")
    untrained = open_encoder(f"{tmp_path / 'run'},pretrained=no")
    assert untrained.what == f"untrained encoder of {tmp_path / 'run'},pretrained=no" and not untrained.unfinished
    assert all(torch.equal(tensor, untrained.timm().state_dict()[name]) for name, tensor in began.items()) and began
    trained = open_encoder(f"{tmp_path / 'run'},pretrained=yes")
    assert trained.fingerprint() == open_encoder(tmp_path / "run").fingerprint() != untrained.fingerprint()
    images = pictures(32, 32)
    assert untrained.pooled(images).shape == trained.pooled(images).shape
    shutil.copy(tmp_path / "run" / "encoder.safetensors", tmp_path / "alone.safetensors")
    alone = open_encoder(f"{tmp_path / 'alone.safetensors'},pretrained=no")
    assert alone.fingerprint() not in (untrained.fingerprint(), trained.fingerprint()), "its seed is not known"
    for name, option in (("run", "maybe"), ("alone.safetensors", "")):
        with pytest.raises(UserError, match=f"pretrained={option} in .* does not work. Write RUN,pretrained=no"):
            open_encoder(f"{tmp_path / name},pretrained={option}")
    (tmp_path / "weights.pth").touch()
    with pytest.raises(UserError, match="other files have none"):
        open_encoder(f"{tmp_path / 'weights.pth'},pretrained=no")


# All of them


def encoders(run: Path, folder: Path) -> list[Any]:
    model = saved_model(folder, "vit")
    return [
        open_encoder(run),
        timm_encoder("vit_tiny_patch16_224", **SMALL, patch_size=8),
        HuggingFaceEncoder(model, "hf:tiny", "a tiny one").eval(),
    ]


def test_one_changed_weight_makes_another_fingerprint(finished: Path, tmp_path: Path) -> None:
    for encoder in encoders(finished, tmp_path):
        before = encoder.fingerprint()
        assert encoder.fingerprint() == before
        with torch.no_grad():
            next(encoder.parameters()).view(-1)[0] += 1e-3
        assert encoder.fingerprint() != before, encoder.what


def test_gradients_flow_through_the_vector_of_an_image_to_all_blocks(finished: Path, tmp_path: Path) -> None:
    for encoder in encoders(finished, tmp_path):
        encoder.requires_grad_().pooled(pictures()).square().sum().backward()
        weights = {name: value for name, value in encoder.named_parameters() if ".mlp." in name or "attn" in name}
        assert weights and all(bool(value.grad.any()) for name, value in weights.items() if "weight" in name)


def test_more_layers_than_there_are_and_arrays_that_are_no_images_are_refused(finished: Path, tmp_path: Path) -> None:
    for encoder in encoders(finished, tmp_path):
        with pytest.raises(UserError, match=rf"layers={encoder.depth + 1} is out .* Use 1 to {encoder.depth}\."):
            encoder.layers(pictures(), encoder.depth + 1)
        with pytest.raises(UserError, match=r"Images of int64 are not accepted. Give uint8"):
            encoder.pooled(pictures().long())
        with pytest.raises(UserError, match="no three color channels"):
            encoder.pooled(pictures()[:, :1])
