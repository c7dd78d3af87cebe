"""What is predicted: normalization of target features, token by token and over recent images."""

from pathlib import Path
from typing import Any

import pytest
import torch
from interrupted import assert_a_resumed_run_ends_as_if_nothing_had_happened
from safetensors.torch import load_file
from tiny import RECIPE, write_pictures
from torch.nn import functional as F

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.masking import sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.methods.targets import RunningStandardization
from flexpredict.model.building import build_encoder
from flexpredict.model.predictor import Predictor
from flexpredict.settings.masking import Masking
from flexpredict.settings.targets import Targets


def make(**settings: Any) -> IJEPA:
    encoder = build_encoder(
        "vit_tiny_patch16_224", (32, 32), 4, options={"embed_dim": 24, "depth": 3, "num_heads": 2}
    )
    return IJEPA(encoder, Predictor(24, (8, 8), 16, 2, 2), Targets(**settings))


def one_pass(model: IJEPA, seed: int = 0) -> Any:
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    masks = sample_masks(Masking(), (8, 8), key=seed, batch=6)
    return model(images, masks.context, masks.targets), masks.targets


@pytest.mark.parametrize("places", [1, 4])
def test_features_seen_again_have_mean_zero_and_deviation_one(places: int) -> None:
    generator = torch.Generator().manual_seed(0)
    where = torch.randint(0, 4, (50, 10), generator=generator)
    means = torch.randn(4, 5, generator=generator) * 3
    features = torch.randn(50, 10, 5, generator=generator) * torch.tensor([0.1, 1, 2, 5, 10]) + means[where]
    standardization = RunningStandardization(5, places)
    assert torch.equal(standardization(features, where), features), "nothing is known before the first step"
    standardization.update()
    after = standardization(features, where)
    torch.testing.assert_close(after.mean((0, 1)), torch.zeros(5), atol=1e-4, rtol=0)
    torch.testing.assert_close(after.flatten(0, 1).std(0, correction=0), torch.ones(5), atol=2e-3, rtol=0)
    at_place = after[where == 2].mean(0).abs()
    assert (at_place < 1e-4).all() if places == 4 else (at_place > 0.1).any()


def test_parts_of_a_batch_count_like_the_whole_and_the_past_fades() -> None:
    features, where = torch.randn(40, 3, 5) + 1, torch.zeros(40, 3, dtype=torch.int64)
    whole, parts = RunningStandardization(5), RunningStandardization(5)
    whole(features, where)
    for part in (slice(0, 10), slice(10, 40)):
        parts(features[part], where[part])
    for one in (whole, parts):
        one.update()
    torch.testing.assert_close(whole(features, where), parts(features, where))
    for _ in range(200):
        whole(features + 7, where)
        whole.update()
    torch.testing.assert_close(whole(features + 7, where).mean((0, 1)), torch.zeros(5), atol=1e-3, rtol=0)


def test_no_image_is_learned_from_while_evaluating() -> None:
    standardization = RunningStandardization(5).eval()
    standardization(torch.randn(4, 3, 5) + 1, torch.zeros(4, 3, dtype=torch.int64))
    standardization.update()
    assert not standardization.count.any()


def test_standardized_targets_are_the_features_less_their_mean_over_their_deviation() -> None:
    model = make(standardize="feature")
    first, _ = one_pass(model)
    flat = first.features.flatten(0, -2)
    torch.testing.assert_close(first.targets, first.features)
    model.after_step(1.0)
    second, _ = one_pass(model)
    expected = (second.features - flat.mean(0)) / (flat.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(second.targets, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(second.loss, F.smooth_l1_loss(second.predictions, expected), atol=1e-5, rtol=1e-4)


def test_averaged_layers_are_the_mean_of_layer_normed_ones() -> None:
    model = make(layers=2)
    images = torch.randn(2, 3, 32, 32)
    targets = torch.arange(64).view(1, 1, 4, 16).expand(2, -1, -1, -1)
    layers = [F.layer_norm(x, x.shape[-1:]) for x in model.target_encoder.last_layers(images, 2)]
    expected = F.layer_norm((layers[0] + layers[1]) / 2, (24,)).view(2, 4, 16, 24)
    torch.testing.assert_close(model.target_features(images, targets), expected)


def test_tanh_keeps_the_lengths_that_a_layer_norm_makes_equal() -> None:
    images = torch.randn(2, 3, 32, 32) * 3
    targets = torch.arange(64).view(1, 1, 4, 16).expand(2, -1, -1, -1)
    lengths = {norm: make(norm=norm).target_features(images, targets).norm(dim=-1) for norm in ("layer", "tanh")}
    assert lengths["layer"].std() < 1e-3 < lengths["tanh"].std()


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"layers": 3}, r"targets.layers=3, but the encoder has 2 layers"),
        ({"layers": 0}, r"targets.layers=0 is out of range: it must be at least 1"),
        ({"layers": 2, "norm": "tanh"}, r"targets.norm=tanh.*targets.layers=1"),
    ],
)
def test_targets_that_do_not_exist_are_refused(targets: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        pretrain(str(write_pictures(tmp_path / "pictures")), tmp_path / "run", **RECIPE, targets=targets)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_with_muon_held_noise_and_standardized_targets_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {
        **RECIPE,
        "targets": {"standardize": "position"},
        "positions": {"noise_to_signal": 1.5, "hold": True},
        "optimizer": {"kind": "muon"},
    }
    pictures = str(write_pictures(tmp_path / "pictures"))
    assert_a_resumed_run_ends_as_if_nothing_had_happened(IJEPA, pictures, tmp_path, recipe, monkeypatch)
    saved = load_file(tmp_path / "whole" / "checkpoints" / "last" / "optimizer.safetensors")
    assert any(name.startswith("momentum_buffer/") for name in saved)
    assert any(name.startswith("exp_avg/") for name in saved)


def test_a_pass_whose_step_is_left_out_leaves_no_statistics() -> None:
    model, other = make(standardize="feature"), make(standardize="feature")
    for number in range(3):
        for one in (model, other):
            one_pass(one, seed=number)
            one.after_step(0.9)
        one_pass(model, seed=10 + number)
        model.forget_pass()
    assert model.standardization and other.standardization
    for ours, theirs in zip(model.standardization.buffers(), other.standardization.buffers(), strict=True):
        assert torch.equal(ours, theirs)
