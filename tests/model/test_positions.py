"""Stochastic positions do what the paper's equations say."""

import copy
import math

import pytest
import torch
from torch import nn

from flexpredict.model.positions import (
    StochasticPositions,
    learned_positions,
    location_blur,
    noise_to_signal,
    sincos_positions,
)
from flexpredict.randomness import sample_keys
from flexpredict.settings.positions import noise_std_at_start


def make(noise_std: float = 0.5, d_e: int = 6, d_p: int = 8) -> tuple[nn.Linear, StochasticPositions]:
    torch.manual_seed(0)
    projection = nn.Linear(d_e, d_p)
    return projection, StochasticPositions(projection, noise_std)


@pytest.mark.parametrize("grid", [(4, 4), (3, 7), (7, 3), (1, 5)])
def test_sincos_encodes_column_then_row_at_each_frequency(grid: tuple[int, int]) -> None:
    dim = 16
    positions = sincos_positions(grid, dim)
    assert positions.shape == (grid[0] * grid[1], dim)
    for row in range(grid[0]):
        for column in range(grid[1]):
            for index in range(dim // 4):
                frequency = 10_000 ** (-index / (dim / 4))
                psi = positions[row * grid[1] + column]
                expected = [
                    math.sin(column * frequency),
                    math.cos(column * frequency),
                    math.sin(row * frequency),
                    math.cos(row * frequency),
                ]
                assert psi[index :: dim // 4].tolist() == pytest.approx(expected, abs=1e-6)


def test_every_sincos_position_has_the_same_norm_and_none_occurs_twice() -> None:
    positions = sincos_positions((14, 9), 32)
    assert torch.allclose(positions.norm(dim=1), torch.tensor(16.0).sqrt())
    distances = torch.cdist(positions, positions) + 10 * torch.eye(len(positions))
    assert distances.min() > 0.1


def test_sincos_refuses_a_dimension_that_four_does_not_divide() -> None:
    with pytest.raises(ValueError, match="divisible by 4"):
        sincos_positions((4, 4), 10)


def test_sample_mean_is_psi_and_sample_covariance_is_that_of_a() -> None:
    projection, stochastic = make(noise_std=0.5)
    psi = torch.randn(8)
    keys = sample_keys(7, torch.arange(200_000))
    drawn = stochastic(psi.expand(len(keys), 1, 8), keys)[:, 0]
    assert (drawn.mean(dim=0) - psi).abs().max() < 0.01
    expected = 0.25 * projection.weight @ projection.weight.T
    assert (torch.cov(drawn.T) - expected).abs().max() < 0.01 * expected.abs().max() + 0.002


def test_torchs_own_generator_gives_the_same_distribution() -> None:
    projection, stochastic = make(noise_std=0.5)
    drawn = stochastic(torch.zeros(200_000, 1, 8))[:, 0]
    expected = 0.25 * projection.weight @ projection.weight.T
    assert (torch.cov(drawn.T) - expected).abs().max() < 0.01 * expected.abs().max() + 0.002


def test_gradients_reach_the_projection_through_the_noise() -> None:
    projection, stochastic = make(noise_std=0.5)
    keys = sample_keys(1, torch.arange(3))
    masked = torch.zeros(3, 4, 8)
    out = stochastic(masked, keys)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    # out = n Aᵀ is linear in A, so <grad, A> must be the sum itself.
    torch.testing.assert_close((projection.weight.grad * projection.weight).sum(), (out * weights).sum())
    assert projection.bias.grad is None


def test_without_noise_it_equals_the_deterministic_position_exactly() -> None:
    _, stochastic = make(noise_std=0.0)
    masked = torch.randn(3, 4, 8)
    assert torch.equal(stochastic(masked, sample_keys(1, torch.arange(3))), masked)


def test_noise_cannot_be_switched_off_without_losing_context() -> None:
    projection, stochastic = make(noise_std=0.5)
    features = torch.randn(3, 5, 6)
    masked = torch.randn(3, 4, 8)
    with torch.no_grad():
        projection.weight.zero_()
    assert torch.equal(stochastic(masked), masked)
    context = projection(features)
    assert torch.equal(context, projection.bias.expand_as(context)), "with A = 0 nothing of the features is left"


def test_it_is_deterministic_in_evaluation() -> None:
    _, stochastic = make()
    masked = torch.randn(3, 4, 8)
    assert not torch.equal(stochastic(masked), masked)
    assert torch.equal(stochastic.eval()(masked), masked)


def test_it_adds_no_parameter_and_saves_nothing_of_its_own() -> None:
    projection, stochastic = make()
    assert list(stochastic.parameters()) == [] and stochastic.state_dict() == {}
    model = nn.ModuleDict({"projection": projection, "stochastic": stochastic})
    copied = copy.deepcopy(model)
    assert copied["stochastic"].projection is copied["projection"], "a copy is tied to its own A"


def test_with_bias_the_noise_is_projected_as_in_the_released_code() -> None:
    projection, _ = make()
    released = StochasticPositions(projection, 0.5, with_bias=True)
    masked, keys = torch.randn(3, 4, 8), sample_keys(1, torch.arange(3))
    plain = StochasticPositions(projection, 0.5)(masked, keys)
    torch.testing.assert_close(released(masked, keys), plain + projection.bias)
    torch.testing.assert_close(released.eval()(masked), masked + projection.bias)


def test_a_negative_noise_level_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        StochasticPositions(nn.Linear(2, 4), -0.1)


def test_noise_to_signal_is_the_measured_ratio_of_norms() -> None:
    projection, stochastic = make(noise_std=0.7)
    psi = sincos_positions((5, 5), 8)
    moved = stochastic(psi.expand(4000, -1, -1)).detach() - psi
    measured = moved.square().sum(-1).mean().sqrt() / psi.square().sum(-1).mean().sqrt()
    assert noise_to_signal(projection.weight, psi, 0.7) == pytest.approx(float(measured), rel=0.02)


@pytest.mark.parametrize("d_e", [96, 768])
def test_a_ratio_asked_for_is_the_ratio_at_the_start(d_e: int) -> None:
    projection = nn.Linear(d_e, 64)
    nn.init.trunc_normal_(projection.weight, std=0.02)
    noise_std = noise_std_at_start(0.2, d_e)
    assert noise_to_signal(projection.weight, sincos_positions((8, 8), 64), noise_std) == pytest.approx(0.2, rel=0.03)
    assert noise_std_at_start(0.19596, 768) == pytest.approx(0.25, rel=1e-3), "the paper's ViT-B"


def test_location_blur_grows_with_the_noise_from_none_to_a_random_place() -> None:
    torch.manual_seed(0)
    grid, psi = (6, 9), sincos_positions((6, 9), 32)
    projection = torch.randn(32, 16)
    levels = [location_blur(projection, psi, grid, std) for std in (0.0, 0.1, 0.3, 1.0, 100.0)]
    assert levels[0] == (0.0, 1.0)
    blurs, kept = zip(*levels, strict=True)
    assert list(blurs) == sorted(blurs) and list(kept) == sorted(kept, reverse=True)
    assert blurs[-1] > 2.0 and kept[-1] < 0.1


def test_location_blur_measures_distance_in_patches() -> None:
    """A noise that can only turn one grid neighbor into the other moves a token by one patch or not at all."""
    psi = torch.tensor([[0.0], [1.0]])
    blur, kept = location_blur(torch.tensor([[1.0]]), psi, (1, 2), noise_std=10.0, draws=20_000)
    assert blur == pytest.approx(1 - kept)
    # A normal of standard deviation 10 passes the middle (0.5 away) with probability Φ(-0.05).
    assert blur == pytest.approx(0.48, abs=0.01)


def test_learned_positions_are_trained_and_one_a_patch() -> None:
    positions = learned_positions((3, 5), 8)
    assert positions.shape == (15, 8) and positions.requires_grad


def test_held_noise_stays_as_strong_when_the_matrix_shrinks() -> None:
    projection = torch.nn.Linear(96, 48)
    torch.nn.init.normal_(projection.weight, std=0.02)
    free, held = (StochasticPositions(projection, 5.0, hold=hold) for hold in (False, True))
    strength = {}
    for factor in (1.0, 0.25):
        projection.weight.data *= factor
        torch.manual_seed(0)
        strength[factor] = [module(torch.zeros(2000, 48)).norm(dim=1).mean().item() for module in (free, held)]
    assert strength[0.25][0] == pytest.approx(0.25 * strength[1.0][0], rel=0.05)
    assert strength[0.25][1] == pytest.approx(strength[1.0][1], rel=0.05)


def test_only_a_matrix_can_be_tied_and_only_a_finite_level_is_one() -> None:
    with pytest.raises(TypeError, match="linear layer or a 2-D convolution, not of Conv1d"):
        StochasticPositions(nn.Conv1d(3, 4, 1))  # type: ignore[arg-type]
    for level in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="cannot be negative or infinite"):
            StochasticPositions(nn.Linear(3, 4), level)
