"""Label subsets: nested, with every class, in proportions as near to those of all images as can be."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.errors import UserError


def class_sizes(labels: Tensor, subset: Tensor) -> list[int]:
    return torch.bincount(labels[subset]).tolist()


def test_subset_keeps_the_proportions_of_the_classes() -> None:
    labels = torch.arange(4).repeat_interleave(torch.tensor([5000, 3000, 1200, 800]))
    assert class_sizes(labels, label_subset(labels, 0.01, seed=0)) == [50, 30, 12, 8]
    assert class_sizes(labels, label_subset(labels, 0.1, seed=0)) == [500, 300, 120, 80]
    assert torch.equal(label_subset(labels, 1.0, seed=0), torch.arange(10000))


@pytest.mark.parametrize("sizes", [(53, 24, 23), (60, 8, 7, 6), (20, 20, 3, 1)])
@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.13, 0.3, 0.77])
def test_no_other_subset_of_that_size_has_nearer_proportions(sizes: tuple[int, ...], fraction: float) -> None:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))

    def distance(counts: tuple[int, ...]) -> float:
        return sum((a - fraction * n) ** 2 / n for a, n in zip(counts, sizes, strict=True))

    subset = label_subset(labels, fraction, seed=0)
    possible = itertools.product(*(range(1, n + 1) for n in sizes[1:]))
    completed = ((len(subset) - sum(rest), *rest) for rest in possible)
    nearest = min(distance(counts) for counts in completed if 1 <= counts[0] <= sizes[0])
    assert distance(tuple(class_sizes(labels, subset))) == pytest.approx(nearest)


def test_every_class_is_in_the_smallest_subset() -> None:
    labels = torch.cat([torch.zeros(1000, dtype=torch.int64), torch.arange(1, 11)])
    assert class_sizes(labels, label_subset(labels, 1e-6, seed=0)) == [1] * 11
    assert class_sizes(labels, label_subset(labels, 0.02, seed=0)) == [10] + [1] * 10


def test_subset_that_grows_takes_no_image_away_where_largest_remainders_would() -> None:
    labels = torch.arange(3).repeat_interleave(torch.tensor([6, 6, 2]))
    # The shares of 10 and 11 seats by largest remainder are 4 4 2 and 5 5 1: the Alabama paradox.
    ten, eleven = label_subset(labels, 10 / 14, seed=0), label_subset(labels, 11 / 14, seed=0)
    assert len(ten) == 10 and len(eleven) == 11 and torch.isin(ten, eleven).all()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    fractions=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_subsets_are_nested_distinct_and_of_the_right_size(
    sizes: list[int], fractions: tuple[float, float], seed: int
) -> None:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    small, large = (label_subset(labels, fraction, seed) for fraction in sorted(fractions))
    assert torch.isin(small, large).all()
    for subset, fraction in ((small, min(fractions)), (large, max(fractions))):
        assert len(subset.unique()) == len(subset) == max(len(sizes), round(fraction * len(labels)))
        assert torch.equal(labels[subset].unique(), torch.arange(len(sizes)))


def test_subset_depends_on_the_seed_only() -> None:
    labels = torch.arange(1000) % 10
    assert torch.equal(label_subset(labels, 0.1, seed=3), label_subset(labels, 0.1, seed=3))
    assert not torch.equal(label_subset(labels, 0.1, seed=3), label_subset(labels, 0.1, seed=4))


def test_images_of_a_class_are_equally_likely_to_be_in_a_subset() -> None:
    labels = torch.arange(40) % 2
    times = torch.zeros(40)
    for seed in range(400):
        times[label_subset(labels, 0.25, seed)] += 1
    # 400 draws at 1/4: mean 100, deviation 8.7.
    assert times.sum() == 4000 and (times - 100).abs().max() < 40


def test_impossible_subsets_are_refused() -> None:
    labels = torch.tensor([0, 0, 2, 2])
    with pytest.raises(UserError, match="1 of 3 classes have no image, the first is 1"):
        label_subset(labels, 0.5, seed=0)
    for fraction in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="must be more than 0 and at most 1"):
            label_subset(torch.arange(4), fraction, seed=0)
    with pytest.raises(UserError, match="from 0 up"):
        label_subset(torch.tensor([-1, 0]), 0.5, seed=0)
