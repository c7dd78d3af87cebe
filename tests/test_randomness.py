"""Random numbers as pure functions of their keys."""

import shutil

import pytest
import torch

from flexpredict.randomness import normal, permutation, sample_keys, shuffled, stream_key, uniform


def keys(count: int, seed: int = 0, what: str = "test") -> torch.Tensor:
    return sample_keys(stream_key(seed, what, 3), torch.arange(count))


def test_words_are_those_of_splitmix64() -> None:
    """The first outputs of the reference generator for seed 1234567."""
    from flexpredict.randomness import random_words

    words = [word % 2**64 for word in random_words(torch.tensor([1234567]), 3)[0].tolist()]
    assert words == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_sample_draws_the_same_in_any_batch() -> None:
    together = normal(keys(10), 7)
    alone = torch.stack([normal(key[None], 7)[0] for key in keys(10)])
    assert torch.equal(together, alone)
    assert torch.equal(uniform(keys(10)[4:6], 5), uniform(keys(10), 5)[4:6])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_code_draws_the_same() -> None:
    torch.testing.assert_close(torch.compile(normal, dynamic=True)(keys(8), 100), normal(keys(8), 100))


def test_different_purposes_steps_and_seeds_give_different_streams() -> None:
    streams = {stream_key(seed, what, step) for seed in range(5) for what in ("masks", "noise") for step in range(20)}
    assert len(streams) == 5 * 2 * 20
    a, b = normal(keys(50, what="masks"), 400).flatten(), normal(keys(50, what="noise"), 400).flatten()
    assert abs(torch.corrcoef(torch.stack((a, b)))[0, 1]) < 0.02


def test_uniform_numbers_are_uniform_and_below_one() -> None:
    drawn = uniform(keys(1000), 301).flatten()
    assert drawn.min() >= 0.0 and drawn.max() < 1.0
    histogram = torch.histc(drawn, 20, 0.0, 1.0) / len(drawn)
    assert (histogram - 0.05).abs().max() < 0.002


def test_normal_numbers_have_the_moments_of_a_gaussian_and_are_uncorrelated() -> None:
    drawn = normal(keys(4000), 64)
    assert abs(drawn.mean()) < 0.01 and abs(drawn.var() - 1) < 0.01
    assert abs((drawn**3).mean()) < 0.03 and abs((drawn**4).mean() - 3) < 0.06
    covariance = drawn.T @ drawn / len(drawn)
    assert (covariance - torch.eye(64)).abs().max() < 0.1


def test_a_permutation_holds_every_number_once_and_differs_by_key() -> None:
    first, second = permutation(1, 1000), permutation(2, 1000)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert not torch.equal(first, second)
    assert torch.equal(first, permutation(1, 1000))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 64, 97, 1000, 4097])
def test_a_shuffled_range_holds_every_number_once(count: int) -> None:
    order = shuffled(stream_key(3, "order", count), count, torch.arange(count))
    assert order.sort().values.equal(torch.arange(count))


def test_a_shuffled_range_can_be_read_anywhere_even_if_it_is_endless() -> None:
    whole = shuffled(17, 1000, torch.arange(1000))
    some = torch.tensor([999, 0, 512, 512])
    assert torch.equal(shuffled(17, 1000, some), whole[some])
    count = 5 * 10**12
    far = shuffled(17, count, torch.arange(count - 1000, count))
    assert len(far.unique()) == 1000 and int(far.min()) >= 0 and int(far.max()) < count


def test_every_number_is_equally_likely_at_every_position_and_after_every_other() -> None:
    count, trials = 6, 6000
    orders = torch.stack([shuffled(stream_key(0, "t", t), count, torch.arange(count)) for t in range(trials)])
    for position in range(count):
        assert_uniform(torch.bincount(orders[:, position], minlength=count))
    pairs = orders[:, 2] * count + orders[:, 3]
    seen = torch.bincount(pairs, minlength=count**2)
    assert_uniform(seen[[a * count + b for a in range(count) for b in range(count) if a != b]])


def test_neighbors_of_a_long_shuffled_range_have_nothing_to_do_with_each_other() -> None:
    order = shuffled(5, 100_000, torch.arange(20_000)).double() / 100_000
    for lag in (1, 2, 316, 317):  # 317 columns: the rectangle that the numbers are cells of
        correlation = torch.corrcoef(torch.stack((order[:-lag], order[lag:])))[0, 1]
        assert abs(correlation) < 4 / 20_000**0.5
    assert abs(order.mean() - 0.5) < 4 * (1 / 12 / 20_000) ** 0.5


def assert_uniform(counts: torch.Tensor) -> None:
    """Chi-squared: below the 1 - 1e-6 quantile, for which mean + 5 standard deviations + 10 is generous."""
    expected = counts.sum() / len(counts)
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5 + 10
