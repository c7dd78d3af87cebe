"""The read-out is scikit-learn's ridge regression, fitted and judged by moments alone."""

import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from flexpredict.evaluation.location.place import coordinates
from flexpredict.evaluation.ridge import PENALTIES, Moments, best_readout, ridges

DIM = 9


def data(rows: int = 300, seed: int = 0, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Correlated features of different size, far from zero, and two targets that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    features = torch.randn(rows, DIM, generator=generator, dtype=torch.float64) @ mixing * torch.logspace(-2, 2, DIM)
    targets = features[:, 2:4] / features[:, 2:4].std(dim=0)
    targets = targets + noise * torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    return features + 300, targets


def moments_of(features: Tensor, targets: Tensor, offset: Tensor | None = None) -> Moments:
    """In chunks of unequal size."""
    moments = Moments(torch.cat((features[0], targets[0])) if offset is None else offset)
    for start, stop in ((0, 1), (1, 120), (120, len(features))):
        moments.add(features[start:stop], targets[start:stop])
    return moments


@pytest.mark.parametrize("penalty", [1.0, 1e-2, 1e-6])
def test_it_is_the_ridge_of_scikit_learn_on_standardized_features(penalty: float) -> None:
    features, targets = data()
    scaler = StandardScaler().fit(features)
    reference = Ridge(alpha=penalty * len(features)).fit(scaler.transform(features), targets)
    (readout,) = ridges(moments_of(features, targets), 2, (penalty,))
    others, _ = data(seed=1)
    expected = torch.from_numpy(reference.predict(scaler.transform(others)))
    torch.testing.assert_close(readout(others), expected, atol=1e-8, rtol=1e-8)


def test_the_error_on_other_patches_follows_from_their_moments() -> None:
    features, targets = data()
    others, truth = data(seed=1)
    (readout,) = ridges(moments_of(features, targets), 2, (0.1,))
    expected = (readout(others) - truth).square().sum(dim=1).mean()
    assert readout.mean_squared_error(moments_of(others, truth)) == pytest.approx(float(expected), rel=1e-9)


def test_the_penalty_that_is_best_on_held_out_patches_is_fitted_to_all() -> None:
    (features, targets), (others, truth) = data(200, noise=3.0), data(40, seed=1, noise=3.0)
    offset = torch.cat((features[0], targets[0]))
    readout, errors = best_readout(moments_of(features, targets, offset), moments_of(others, truth, offset), 2)
    assert list(errors) == list(PENALTIES) and errors[readout.penalty] == min(errors.values())
    everything = moments_of(torch.cat((features, others)), torch.cat((targets, truth)))
    (expected,) = ridges(everything, 2, (readout.penalty,))
    torch.testing.assert_close(readout.weight, expected.weight)
    torch.testing.assert_close(readout.bias, expected.bias)


def test_features_that_tell_nothing_get_the_strongest_penalty_and_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    features, targets = torch.randn(400, DIM, generator=generator), torch.randn(400, 2, generator=generator)
    offset = torch.zeros(DIM + 2)
    readout, _ = best_readout(
        moments_of(features[:300], targets[:300], offset), moments_of(features[300:], targets[300:], offset), 2
    )
    assert readout.penalty == PENALTIES[0]


def test_constant_features_are_of_no_use_and_do_no_harm() -> None:
    features, targets = data()
    constant = torch.full((len(features), 1), 0.1)
    (with_it,) = ridges(moments_of(torch.cat((constant, features), dim=1), targets), 2, (0.01,))
    (without,) = ridges(moments_of(features, targets), 2, (0.01,))
    assert with_it.weight[0].abs().max() == 0
    torch.testing.assert_close(with_it.weight[1:], without.weight)


def test_a_large_common_offset_costs_no_digits() -> None:
    features, targets = data()
    (near,) = ridges(moments_of(features, targets), 2, (0.01,))
    (far,) = ridges(moments_of(features + 1e6, targets), 2, (0.01,))
    torch.testing.assert_close(far.weight, near.weight, rtol=1e-4, atol=0)


def test_patches_are_counted_row_by_row() -> None:
    assert coordinates((2, 3)).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
