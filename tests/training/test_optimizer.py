"""Muon, and which parameters get which optimizer and weight decay."""

from typing import Literal

import pytest
import torch
from torch import nn

from flexpredict.methods.ijepa import IJEPA
from flexpredict.model import linear
from flexpredict.model.building import build_encoder
from flexpredict.model.predictor import Predictor
from flexpredict.settings.optimizer import SettledOptimizer
from flexpredict.training.muon import Muon, orthogonalized
from flexpredict.training.optimizer import build_optimizers, set_rates


def model() -> IJEPA:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    return IJEPA(build_encoder("vit_tiny_patch16_224", (32, 32), 4, options=options), Predictor(24, (8, 8), 16, 2, 2))


@pytest.mark.parametrize("shape", [(12, 12), (12, 40), (40, 12)])
def test_singular_values_of_an_update_are_about_one_and_its_directions_those_of_the_matrix(
    shape: tuple[int, int],
) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    update = orthogonalized(matrices)
    values = torch.linalg.svdvals(update)
    assert values.min() > 0.6 and values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    cosine = (update * (u @ v)).sum((1, 2)) / (update.norm(dim=(1, 2)) * (u @ v).norm(dim=(1, 2)))
    assert (cosine > 0.97).all()


@pytest.mark.parametrize("shape", [(30, 30), (16, 60), (60, 16), (140, 300)])
@pytest.mark.parametrize("onednn", [False, True])
def test_an_update_is_that_of_the_published_steps_for_small_singular_values_too(
    shape: tuple[int, int], onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: onednn and torch.backends.mkldnn.is_available())
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    matrices = matrices * torch.logspace(0, -4, shape[1])
    x = matrices.double() / matrices.double().norm(dim=(1, 2), keepdim=True)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
    assert (orthogonalized(matrices) - x).norm() < 5e-4 * x.norm()


def test_it_moves_matrices_as_torchs_own_does() -> None:
    """Up to torch's rounding to bfloat16."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(48, 24, bias=False), nn.Linear(48, 24, bias=False)
    theirs.weight.data.copy_(ours.weight)
    start = ours.weight.detach().clone()
    steps = Muon(ours.parameters(), lr=0.02, weight_decay=0.1), torch.optim.Muon(theirs.parameters(), lr=0.02)
    for _ in range(5):
        gradient = torch.randn(24, 48)
        for layer, optimizer in zip((ours, theirs), steps, strict=True):
            layer.weight.grad = gradient.clone()
            optimizer.step()
    moved = (theirs.weight - start).norm()
    assert (ours.weight - theirs.weight).norm() < 0.02 * moved


def test_muon_gets_the_matrices_of_blocks_and_adamw_the_rest_and_each_parameter_has_one() -> None:
    network = model()
    muon, adamw = build_optimizers(SettledOptimizer(kind="muon", lr=1e-3), network)
    names = {id(parameter): name for name, parameter in network.named_parameters() if parameter.requires_grad}
    given = [
        [names.pop(id(parameter)) for group in optimizer.param_groups for parameter in group["params"]]
        for optimizer in (muon, adamw)
    ]
    assert not names, "every trained parameter has an optimizer"
    assert all(".blocks." in name for name in given[0]) and len(given[0]) == 4 * 4
    assert "predictor.projection.weight" in given[1] and "predictor.mask_token" in given[1]


def test_adamw_alone_decays_matrices_and_nothing_else() -> None:
    network = model()
    (adamw,) = build_optimizers(SettledOptimizer(lr=1e-3), network)
    decaying, free = (
        [parameter for group in adamw.param_groups if group["decays"] is decays for parameter in group["params"]]
        for decays in (True, False)
    )
    assert decaying and all(parameter.ndim >= 2 for parameter in decaying)
    assert any(parameter is network.predictor.mask_token for parameter in free)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_encoder_has_a_rate_of_its_own_and_stays_where_that_is_zero(
    kind: Literal["adamw", "muon"],
) -> None:
    network = model()
    optimizers = build_optimizers(SettledOptimizer(kind=kind, lr=1e-3), network)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}

    def moved(encoder_share: float) -> dict[str, float]:
        set_rates(optimizers, 0.5, 0.1, encoder_share)
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        for optimizer in optimizers:
            optimizer.step()
        changes = {name: float((p.detach() - before[name]).abs().max()) for name, p in network.named_parameters()}
        return {name: change for name, change in changes.items() if change}

    assert moved(0.0) and all(name.startswith("predictor.") for name in moved(0.0))
    assert any(name.startswith("context_encoder.") for name in moved(0.1))
    rates = {(g["encoder"], o is optimizers[-1]): g["lr"] for o in optimizers for g in o.param_groups}
    assert rates[True, True] == pytest.approx(0.5 * 1e-3 * 0.1) and rates[False, True] == pytest.approx(0.5 * 1e-3)
