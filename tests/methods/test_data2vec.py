"""data2vec: its targets and its masked tokens written out plainly, its noise in pixel space, whole runs."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from interrupted import assert_a_resumed_run_ends_as_if_nothing_had_happened
from safetensors.torch import load_file
from tiny import RECIPE
from torch.nn import functional as F

from flexpredict import pretrain
from flexpredict.masking import sample_masks
from flexpredict.methods.data2vec import Data2Vec
from flexpredict.model.building import build_encoder
from flexpredict.model.positions import noise_to_signal
from flexpredict.randomness import normal, sample_keys
from flexpredict.runs.encoder_file import read_encoder
from flexpredict.settings.masking import Masking
from flexpredict.settings.positions import Positions

RUN = {name: value for name, value in RECIPE.items() if name != "predictor"} | {"method": "data2vec"}


def make(layers: int = 2, class_token: bool = False, **positions: Any) -> Data2Vec:
    options = {"embed_dim": 24, "depth": 3, "num_heads": 2}
    settings = Positions(**{"kind": "sincos", **positions})
    kind = "learned" if settings.kind == "learned" else "sincos"
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 4, kind, class_token=class_token, options=options)
    return Data2Vec(encoder, settings, layers, l1=settings.l1)


def inputs(rows: int = 3, contexts: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    masks = sample_masks(Masking(kind="blocks", contexts_per_image=contexts), (8, 8), 5, rows)
    keys = sample_keys(9, torch.arange(rows * contexts).view(rows, contexts))
    return torch.randn(rows, 3, 32, 32), masks.context, masks.targets, keys


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("class_token", [False, True])
def test_targets_are_the_mean_of_the_last_layers_each_normalized(layers: int, class_token: bool) -> None:
    """Against timm's own pass, listened to block by block."""
    model = make(layers, class_token)
    with torch.no_grad():
        for parameter in model.target_encoder.parameters():
            parameter.add_(0.1)  # so that it is not the student
    images, _, targets, _ = inputs()
    vit, heard = copy.deepcopy(model.target_encoder.vit), []
    for block in vit.blocks:
        block.register_forward_hook(lambda module, args, output: heard.append(output))
    vit.forward_features(images)
    normalized = []
    for output in heard[-layers:]:
        tokens = output[:, 1:] if class_token else output
        centered = tokens - tokens.mean(dim=-1, keepdim=True)
        normalized.append(centered / (centered.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt())
    expected = torch.stack(normalized).mean(dim=0)
    for row in range(len(images)):
        torch.testing.assert_close(
            model.target_features(images, targets)[row, 0], expected[row, targets[row, 0, 0]], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("class_token", [False, True])
def test_the_student_is_the_encoder_with_mask_tokens_in_the_place_of_hidden_patches(class_token: bool) -> None:
    """All tokens in their natural order through timm's own blocks."""
    model = make(class_token=class_token)
    images, context, targets, keys = inputs()
    vit, tokens = model.context_encoder.vit, model.predictor
    prefix = int(class_token)
    embedded = vit.patch_embed(images)
    hidden = torch.zeros(3, 64, 1, dtype=torch.bool).scatter(1, targets[:, 0, 0, :, None], True)
    x = torch.where(hidden, tokens.mask_token, embedded) + vit.pos_embed[:, prefix:]
    if class_token:
        x = torch.cat(((vit.cls_token + vit.pos_embed[:, :1]).expand(3, -1, -1), x), dim=1)
    features = tokens.output(vit.norm(vit.blocks(x)))[:, prefix:]
    result = model(images, context, targets, keys)
    chosen = features.gather(1, targets[:, 0, 0, :, None].expand(-1, -1, 24))
    torch.testing.assert_close(result.predictions[:, 0], chosen, atol=1e-5, rtol=1e-5)
    difference = (chosen - result.targets[:, 0]).abs()
    loss = torch.where(difference < 2.0, difference.square() / 4.0, difference - 1.0).mean()
    torch.testing.assert_close(result.loss, loss, atol=1e-5, rtol=1e-5)


def test_hidden_pixels_cannot_be_seen_by_the_student() -> None:
    model = make(kind="stochastic")
    images, context, targets, keys = inputs(1)
    before = model(images, context, targets, keys).predictions
    for patch in targets.flatten().tolist():
        row, column = divmod(patch, 8)
        images[0, :, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 7.0
    assert torch.equal(model(images, context, targets, keys).predictions, before)


def test_noise_is_that_of_pixels_through_the_patch_embedding_and_zero_noise_is_sincos() -> None:
    """Noise on a masked token is what the patch embedding makes of a patch of noise, without its bias."""
    model = make(kind="stochastic", noise_std=0.5)
    proj, keys = model.context_encoder.vit.patch_embed.proj, sample_keys(9, torch.arange(3))
    moved = model.predictor.stochastic(torch.zeros(3, 10, 24), keys)
    pixels = 0.5 * normal(keys, 10 * 48).view(30, 3, 4, 4)
    expected = F.conv2d(pixels, proj.weight, stride=4).view(3, 10, 24)
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-5)

    data = inputs()
    plain = make()(*data).predictions
    assert torch.equal(make(kind="stochastic", noise_std=0.0)(*data).predictions, plain)
    assert not torch.equal(model(*data).predictions, plain)
    assert torch.equal(model.eval()(*data).predictions, plain)


@pytest.mark.parametrize("covariance", ["tied", "fixed", "untied", "diagonal"])
def test_a_noise_to_signal_ratio_means_the_same_for_every_covariance(covariance: str) -> None:
    model = make(kind="stochastic", noise_to_signal=0.4, covariance=covariance)
    tokens = model.masked_tokens
    ratio = noise_to_signal(tokens.stochastic.noise_matrix, tokens.positions, tokens.stochastic.noise_std)
    assert ratio == pytest.approx(0.4, rel=1e-4)


@pytest.mark.parametrize("kind", ["sincos", "learned", "stochastic"])
def test_every_trained_parameter_learns_and_the_teacher_does_not(kind: str) -> None:
    model = make(kind=kind)
    model(*inputs()).loss.backward()
    assert all(parameter.grad is None for parameter in model.target_encoder.parameters())
    trained = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert [name for name, gradient in trained.items() if gradient is None or not gradient.any()] == []
    assert ("context_encoder.vit.pos_embed" in trained) == (kind == "learned")


def test_the_teacher_is_a_moving_average_of_the_student() -> None:
    model = make()
    before = copy.deepcopy(model.target_encoder).state_dict()
    with torch.no_grad():
        for parameter in model.context_encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.requires_grad)
    assert model.after_step(0.9) == {"ema_momentum": 0.9}
    after, source = model.target_encoder.state_dict(), model.context_encoder.state_dict()
    for name in before:
        torch.testing.assert_close(after[name], 0.9 * before[name] + 0.1 * source[name])


def test_several_contexts_of_an_image_equal_the_image_seen_several_times() -> None:
    model = make(kind="stochastic")
    images, context, targets, keys = inputs(2, contexts=3)
    together = model(images, context, targets, keys)
    flat = [part.flatten(0, 1).unsqueeze(1) for part in (context, targets, keys)]
    repeated = model(images.repeat_interleave(3, dim=0), *flat)
    torch.testing.assert_close(together.predictions, repeated.predictions)
    torch.testing.assert_close(together.targets, repeated.targets)


def test_a_run_says_its_defaults_learns_and_saves_the_teacher(pictures: str, tmp_path: Path) -> None:
    pretrain(pictures, tmp_path / "run", **{**RUN, "epochs": 12, "image_size": "32,24x40"})
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["targets"]["layers"] == 1 and config["predictor"]["dim"] is None
    assert (config["masking"]["kind"], config["masking"]["mask_ratio"]) == ("blocks", 0.6)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["loss"] < 0.9 * records[0]["loss"]
    assert records[-1]["noise_to_signal"] == 0 and records[-1]["ema_momentum"] > 0.99
    saved = load_file(tmp_path / "run" / "checkpoints" / "last" / "model.safetensors")
    for name, tensor in read_encoder(tmp_path / "run").encoder.vit.state_dict().items():
        assert torch.equal(tensor, saved[f"target_encoder.vit.{name}"])


def test_an_interrupted_run_ends_bit_identical(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_a_resumed_run_ends_as_if_nothing_had_happened(Data2Vec, pictures, tmp_path, RUN, monkeypatch)
