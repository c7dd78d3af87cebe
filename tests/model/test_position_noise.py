"""Each arm of the paper's ablations: the thing varied varies, and everything else is bit-equal."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from interrupted import assert_a_resumed_run_ends_as_if_nothing_had_happened
from safetensors.torch import load_file
from tiny import RECIPE
from torch import nn
from torch.nn import functional as F

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.masking import sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model.building import build_encoder
from flexpredict.model.position_noise import ConditionalNoise, noisy_tokens, stochastic_positions
from flexpredict.model.positions import noise_to_signal, sincos_positions
from flexpredict.model.predictor import Predictor
from flexpredict.randomness import sample_keys
from flexpredict.settings.masking import Masking
from flexpredict.settings.positions import Positions
from flexpredict.settings.targets import Targets
from flexpredict.training.health import Watch, position_health

COVARIANCES = ["tied", "fixed", "untied", "diagonal", "conditional"]


def make(resolution: Any = "full", **settings: Any) -> IJEPA:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 4, options=options)
    positions = Positions(**settings)
    return IJEPA(encoder, Predictor(24, (8, 8), 16, 2, 2, positions), Targets(resolution=resolution), positions.l1)


def inputs(rows: int = 3, grid: tuple[int, int] = (8, 8)) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    masks = sample_masks(Masking(), grid, 5, rows)
    return torch.randn(rows, 3, 32, 32), masks.context, masks.targets, sample_keys(9, torch.arange(rows)[:, None])


def new_projection(d_e: int = 6, d_p: int = 8) -> nn.Linear:
    torch.manual_seed(0)
    projection = nn.Linear(d_e, d_p)
    nn.init.normal_(projection.weight, std=0.3)
    return projection


# Covariance


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_drawn_noise_has_the_covariance_that_its_name_says(covariance: Any) -> None:
    projection = new_projection()
    stochastic = stochastic_positions(Positions(noise_std=0.5, covariance=covariance), projection, weight_std=0.3)
    a = projection.weight.detach()
    identity = torch.eye(8)
    with torch.no_grad():
        if covariance == "untied":
            stochastic.matrix.mul_(2.0)
        if covariance == "diagonal":
            stochastic.diagonal.copy_(torch.arange(8.0))
    expected = 0.25 * {
        "tied": a @ a.T,
        "conditional": a @ a.T,
        "untied": 4.0 * a @ a.T,
        "diagonal": torch.arange(8.0).square().diag(),
        "fixed": 0.3**2 * 6 * identity,
    }[covariance]  # fmt: skip
    drawn = stochastic(torch.zeros(200_000, 1, 8), sample_keys(7, torch.arange(200_000)))[:, 0].detach()
    assert drawn.mean(dim=0).abs().max() < 0.01 * expected.diag().max().sqrt()
    assert (torch.cov(drawn.T) - expected).abs().max() < 0.015 * expected.abs().max()


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("level", [{"noise_to_signal": 0.3}, {"noise_std": 0.25}])
def test_a_level_means_the_same_ratio_at_the_start_for_every_covariance(
    covariance: Any, level: dict[str, float]
) -> None:
    predictor = Predictor(96, (8, 8), 64, 1, 4, Positions(covariance=covariance, **level))
    ratio = position_health(predictor, 3)["noise_to_signal"]
    expected = level.get("noise_to_signal", 0.25 * 0.02 * math.sqrt(2 * 96))
    assert ratio == pytest.approx(expected, rel=0.03)
    assert ratio == pytest.approx(
        noise_to_signal(predictor.stochastic.noise_matrix, predictor.positions, predictor.stochastic.noise_std)
    )


@pytest.mark.parametrize(("arm", "same"), [("untied", "tied"), ("conditional", "tied"), ("diagonal", "fixed")])
def test_a_learned_covariance_starts_bit_for_bit_at_the_one_it_departs_from(arm: Any, same: Any) -> None:
    ours, theirs = make(covariance=arm)(*inputs()), make(covariance=same)(*inputs())
    assert torch.equal(ours.predictions, theirs.predictions) and torch.equal(ours.loss, theirs.loss)


def test_initial_weights_are_the_same_in_every_arm() -> None:
    plain = make(kind="sincos").state_dict()
    extra = {
        "tied": set(),
        "fixed": set(),
        "untied": {"matrix"},
        "diagonal": {"diagonal"},
        "conditional": {"weight", "bias"},
    }
    for covariance, names in extra.items():
        weights = make(covariance=covariance).state_dict()
        assert weights.keys() - plain.keys() == {f"predictor.stochastic.{name}" for name in names}
        assert all(torch.equal(weights[name], plain[name]) for name in plain)


@pytest.mark.parametrize("covariance", ["untied", "diagonal", "conditional"])
def test_what_is_learned_of_the_noise_gets_a_gradient(covariance: Any) -> None:
    model = make(covariance=covariance)
    model(*inputs()).loss.backward()
    gradients = [parameter.grad for parameter in model.predictor.stochastic.parameters()]
    assert gradients and all(gradient is not None and gradient.any() for gradient in gradients)


def test_a_matrix_of_its_own_shrinks_and_the_tied_one_does_not() -> None:
    """A target that depends on its place: the noise is in the way. Only the untied matrix can be rid of it."""
    norms = {}
    for covariance in ("tied", "untied"):
        predictor = Predictor(8, (4, 4), 32, 1, 2, Positions(noise_to_signal=1.0, covariance=covariance))
        torch.manual_seed(0)
        optimizer = torch.optim.Adam(predictor.parameters(), lr=5e-3)
        table, patches = torch.randn(16, 8), torch.arange(16)
        start = float(predictor.stochastic.noise_matrix.detach().norm())
        for step in range(240):
            features = torch.randn(32, 1, 8).expand(-1, 4, -1)
            context, targets = patches[:4].expand(32, -1), patches[4:].expand(32, 1, -1)
            wanted = table[targets[:, 0]] + 2.0 * features[:, :1]
            predictions = predictor(features, context, targets, sample_keys(step, torch.arange(32)))[:, 0]
            loss = F.smooth_l1_loss(predictions, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        norms[covariance] = float(predictor.stochastic.noise_matrix.detach().norm()) / start
    assert norms["untied"] < 0.5 and norms["tied"] > 0.75, norms


def test_a_conditional_level_follows_the_context_of_each_image_within_its_bounds() -> None:
    conditional = ConditionalNoise(new_projection(), 0.5)
    with torch.no_grad():
        conditional.weight.copy_(torch.linspace(-3, 3, 8))
    context = torch.randn(5000, 4, 8, generator=torch.Generator().manual_seed(1))
    scale = conditional.scale(context).detach()
    assert scale.min() >= 0.5 and scale.max() <= 2.0 and scale.std() > 0.3
    # What it says of an image is what the noise of that image has: compared over images of one level.
    one = context[:1].expand(20_000, -1, -1)
    keys = sample_keys(3, torch.arange(20_000))
    _, noisy = noisy_tokens(conditional, "masked", one, torch.zeros(20_000, 1, 8), keys)
    plain = 0.5 * conditional.projection.weight.detach().norm()
    assert float(noisy.detach().square().sum(-1).mean().sqrt() / plain) == pytest.approx(float(scale[0]), rel=0.02)


# Tokens


def test_noise_is_on_the_tokens_that_were_named_and_each_has_its_own_stream() -> None:
    stochastic = stochastic_positions(Positions(noise_std=0.5), new_projection())
    context, masked, keys = torch.randn(3, 4, 8), torch.randn(3, 2, 4, 8), sample_keys(1, torch.arange(3))
    moved = {on: noisy_tokens(stochastic, on, context, masked, keys) for on in ("masked", "context", "both")}  # type: ignore[arg-type]
    assert torch.equal(moved["masked"][0], context) and not torch.equal(moved["masked"][1], masked)
    assert torch.equal(moved["context"][1], masked) and not torch.equal(moved["context"][0], context)
    assert torch.equal(moved["both"][0], moved["context"][0]) and torch.equal(moved["both"][1], moved["masked"][1])
    assert not torch.allclose(moved["both"][0] - context, (moved["both"][1] - masked)[:, 0])


def test_noise_on_context_tokens_goes_through_a_too() -> None:
    model, data = make(noise_on="context", noise_std=1.0), inputs()
    plain = make(kind="sincos")(*data).predictions
    assert not torch.equal(model(*data).predictions, plain)
    assert torch.equal(model.eval()(*data).predictions, plain)


# Penalty and schedule


@pytest.mark.parametrize("kind", ["sincos", "stochastic", "learned"])
def test_the_penalty_is_the_sum_of_absolute_entries_of_a_and_nothing_else_changes(kind: Any) -> None:
    model, plain, data = make(kind=kind, l1=0.01), make(kind=kind), inputs()
    ours, theirs = model(*data), plain(*data)
    weight = model.predictor.projection.weight
    torch.testing.assert_close(ours.penalty, 0.01 * weight.abs().sum())
    torch.testing.assert_close(ours.loss, theirs.loss + ours.penalty)
    assert theirs.penalty is None and torch.equal(ours.predictions, theirs.predictions)
    ours.loss.backward()
    theirs.loss.backward()
    torch.testing.assert_close(weight.grad, plain.predictor.projection.weight.grad + 0.01 * weight.sign())
    name = "predictor.blocks.0.mlp.fc1.weight"
    assert torch.equal(model.get_parameter(name).grad, plain.get_parameter(name).grad)


def run(pictures: str, out: Path, **fields: Any) -> list[dict[str, Any]]:
    pretrain(pictures, out, **{**RECIPE, "epochs": 1, **fields})
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoints" / "last" / "model.safetensors")


@pytest.mark.parametrize("method", ["ijepa", "mae"])
def test_a_whole_run_without_noise_is_a_run_with_sincos(pictures: str, tmp_path: Path, method: str) -> None:
    run(pictures, tmp_path / "zero", method=method, positions={"noise_std": 0.0})
    run(pictures, tmp_path / "sincos", method=method, positions={"kind": "sincos"})
    ours, theirs = weights(tmp_path / "zero"), weights(tmp_path / "sincos")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_arms_of_a_run_see_the_same_images_masks_and_noise_and_log_what_is_theirs(
    pictures: str, tmp_path: Path
) -> None:
    def first(name: str, **positions: Any) -> dict[str, Any]:
        return run(pictures, tmp_path / name, log_every=1, positions=positions)[0]

    tied, untied = first("tied"), first("untied", covariance="untied")
    conditional, penalized = first("conditional", covariance="conditional"), first("l1", l1=1e-3)
    assert untied["loss"] == tied["loss"] == conditional["loss"]
    assert penalized["loss"] - penalized["l1_penalty"] == pytest.approx(tied["loss"], rel=1e-5)
    assert untied["noise_matrix_norm"] > 0 and 0.5 < conditional["noise_scale"] < 2.0
    assert not {"noise_matrix_norm", "noise_scale", "l1_penalty"} & tied.keys()


@pytest.mark.parametrize(("schedule", "middle"), [("linear", 0.65), ("cosine", 0.65), ("constant", 1.0)])
def test_the_noise_level_follows_its_schedule(pictures: str, tmp_path: Path, schedule: str, middle: float) -> None:
    final = {} if schedule == "constant" else {"final_level": 0.3}
    positions = {"noise_std": 0.4, "schedule": schedule, **final}
    levels = [record["noise_std"] for record in run(pictures, tmp_path / "run", log_every=1, positions=positions)]
    assert levels[0] == 0.4 and levels[3] == pytest.approx(0.4 * middle)
    assert levels == sorted(levels, reverse=True) and levels[-1] == pytest.approx(
        {"linear": 0.4 * (1 - 0.7 * 5 / 6), "cosine": 0.4 * (0.3 + 0.35 * (1 + math.cos(math.pi * 5 / 6)))}.get(
            schedule, 0.4
        )
    )


def test_a_run_with_every_option_ends_bit_identical_after_an_interruption(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = {
        "covariance": "conditional",
        "noise_on": "both",
        "l1": 1e-4,
        "schedule": "cosine",
        "final_level": 0.5,
    }
    recipe = {**RECIPE, "positions": positions, "targets": {"resolution": "half_max"}, "encoder_positions": "learned"}
    assert_a_resumed_run_ends_as_if_nothing_had_happened(IJEPA, pictures, tmp_path, recipe, monkeypatch)


# Resolution


@pytest.mark.parametrize("resolution", ["half_bilinear", "half_max"])
def test_half_resolution_is_what_its_description_says_written_out_plainly(resolution: str) -> None:
    model = make(resolution, kind="sincos")
    images, context, targets, keys = inputs(grid=(4, 4))
    assert model.mask_grid(images) == (4, 4)
    result = model(images, context, targets, keys)
    predictor, losses = model.predictor, []
    for row in range(len(images)):
        features = model.target_encoder(images[row : row + 1])[0].view(4, 2, 4, 2, 24).permute(0, 2, 1, 3, 4)
        cells = features.reshape(16, 4, 24)
        cells = cells.mean(dim=1) if resolution == "half_bilinear" else cells.amax(dim=1)
        wanted = F.layer_norm(cells, (24,))
        patches = [
            (2 * (cell // 4) + down) * 8 + 2 * (cell % 4) + across
            for cell in context[row, 0].tolist()
            for down in (0, 1)
            for across in (0, 1)
        ]
        seen = torch.tensor(patches)
        visible = predictor.projection(model.context_encoder(images[row : row + 1], keep=seen[None])[0])
        visible = visible + predictor.positions[seen]
        for block in targets[row, 0]:
            masked = torch.stack([center(cell, 16) for cell in block.tolist()]) + predictor.mask_token
            out = predictor.blocks(torch.cat((visible, masked))[None])[0, len(visible) :]
            losses.append(F.smooth_l1_loss(predictor.output(predictor.norm(out)), wanted[block]))
    torch.testing.assert_close(result.loss, torch.stack(losses).mean())


def center(cell: int, dim: int) -> torch.Tensor:
    """Sines and cosines of the middle of a cell of 2x2 patches on a grid of 4x4 cells."""
    frequencies = 10_000.0 ** (-torch.arange(dim // 4) / (dim // 4))
    row, column = 2 * (cell // 4) + 0.5, 2 * (cell % 4) + 0.5
    return torch.cat([wave(place * frequencies) for place in (column, row) for wave in (torch.sin, torch.cos)])


def test_bilinear_resizing_by_half_is_the_mean_of_four() -> None:
    model = make("half_bilinear")
    images, _, targets, _ = inputs(grid=(4, 4))
    whole = model.target_encoder(images).unflatten(1, (8, 8)).movedim(3, 1)
    resized = F.interpolate(whole, scale_factor=0.5, mode="bilinear").flatten(2).mT
    expected = F.layer_norm(resized, (24,))[0, targets[0, 0]]
    torch.testing.assert_close(model.target_features(images, targets)[0], expected)


def test_a_learned_position_of_a_cell_is_the_mean_of_its_patches() -> None:
    predictor = Predictor(24, (4, 6), 16, 1, 2, Positions("learned"))
    cells = predictor._cell_positions((4, 6), 2)
    own = predictor.positions
    assert cells.shape == (6, 16)
    torch.testing.assert_close(cells[4], (own[14] + own[15] + own[20] + own[21]) / 4)


def test_cells_of_one_patch_are_the_patches() -> None:
    assert torch.equal(sincos_positions((3, 5), 16, cell=1), sincos_positions((3, 5), 16))


# What a run says, and refuses


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "sincos"),
        ({"positions": {"kind": "learned"}}, "learned"),
        ({"positions": {"kind": "learned"}, "encoder_positions": "sincos"}, "sincos"),
        ({"encoder_positions": "learned"}, "learned"),
    ],
)
def test_the_encoder_has_the_positions_that_it_is_told_or_those_that_follow(
    fields: dict[str, Any], expected: str, pictures: str, tmp_path: Path
) -> None:
    run(pictures, tmp_path / "run", **{"epochs": 1 / 6, **fields})
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["encoder_positions"] == expected
    positions = weights(tmp_path / "run")["context_encoder.vit.pos_embed"][0]
    assert torch.equal(positions, sincos_positions((8, 8), 24)) == (expected == "sincos")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"positions": {"kind": "sincos", "covariance": "fixed"}},
            r"covariance=fixed.*has no noise.*kind=stochastic",
        ),
        ({"positions": {"kind": "learned", "noise_on": "both"}}, r"noise_on=both.*kind=learned has no noise"),
        ({"positions": {"kind": "sincos", "schedule": "linear"}}, r"schedule=linear.*has no noise"),
        ({"positions": {"noise_std": 0.0, "covariance": "untied"}}, r"covariance=untied.*level 0.*Give a level"),
        ({"positions": {"convention": "released", "covariance": "fixed"}}, r"covariance=fixed.*authors' code"),
        ({"positions": {"convention": "released"}, "method": "mae"}, r"code for I-JEPA.*method=ijepa"),
        ({"positions": {"final_level": 0.5}}, r"final_level=0.5.*schedule=linear or cosine"),
        ({"positions": {"l1": -1.0}}, r"positions.l1=-1.*at least 0"),
        ({"positions": {"final_level": -0.5, "schedule": "linear"}}, r"positions.final_level=-0.5.*at least 0"),
        ({"image_size": 36, "targets": {"resolution": "half_max"}}, r"9x9 patches does not divide.*even"),
        ({"method": "mae", "targets": {"resolution": "half_max"}}, r"belongs to method ijepa.*instead of mae"),
        ({"method": "mae", "targets": {"layers": 2}}, r"targets.layers=2 belongs to method ijepa or data2vec"),
        ({"normalize_pixels": False}, r"normalize_pixels=False belongs to method mae"),
        ({"method": "data2vec"}, r"predictor.dim.*data2vec has no predictor.*Leave them out"),
        ({"method": "data2vec", "predictor": {}, "targets": {"layers": 3}}, r"targets.layers=3.*has 2 layers"),
        ({"method": "data2vec", "predictor": {}, "masking": {"kind": "multiblock"}}, r"Use masking.kind=blocks"),
        ({"method": "data2vec", "predictor": {}, "encoder_positions": "learned"}, r"contradicts positions.kind"),
        ({"method": "data2vec", "predictor": {}, "positions": {"covariance": "conditional"}}, r"before the encoder"),
        (
            {"method": "data2vec", "predictor": {}, "masking": {"keep_targets": 0.5}},
            r"keep_targets=0.5.*every position",
        ),
        ({"method": "data2vec", "predictor": {}, "embedding_scale": 2.0}, r"embedding_scale=2.0 belongs to method"),
        ({"method": "simclr"}, "simclr"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason_and_the_way_out(
    fields: dict[str, Any], words: str, pictures: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        pretrain(pictures, tmp_path / "run", **{**RECIPE, **fields})
    assert not (tmp_path / "run").exists()


def test_noise_that_is_being_switched_off_gives_a_warning() -> None:
    watch = Watch()
    assert watch.look({"noise_matrix_norm": 2.0}) == []
    (warning,) = watch.look({"noise_matrix_norm": 0.4})
    assert "switched off" in warning and "covariance=tied" in warning
