"""Location share is the definition on many samples, unbiased on few, and does not depend on how features arrive."""

import math

import pytest
import torch
from torch import Tensor

from flexpredict.model.location_share import LocationShare, location_share

PATCHES, DIM = 12, 7


def features(images: int, spread: float, seed: int = 0) -> Tensor:
    """B N D: places of variance spread² (over the places drawn) and samples of variance 1, in each feature."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randn(PATCHES, DIM, generator=generator, dtype=torch.float64)
    places = (places - places.mean(dim=0)) / places.std(dim=0, correction=0)
    return spread * places + torch.randn(images, PATCHES, DIM, generator=generator, dtype=torch.float64)


def plain_share(features: Tensor) -> float:
    """The definition, in so many words."""
    total = features.flatten(0, 1).var(dim=0, correction=0).sum()
    return float(features.mean(dim=0).var(dim=0, correction=0).sum() / total)


def some_places(images: int, count: int, seed: int = 1) -> Tensor:
    """B count: each image at places of its own, low ones more often."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.linspace(4, 1, PATCHES).expand(images, -1)
    return torch.multinomial(weights, count, generator=generator)


def at(features: Tensor, places: Tensor) -> Tensor:
    return features.gather(1, places.unsqueeze(2).expand(-1, -1, features.shape[2]))


@pytest.mark.parametrize(("spread", "share"), [(0.0, 0.0), (0.5, 0.2), (1.0, 0.5), (3.0, 0.9)])
def test_on_many_samples_it_is_the_plain_definition(spread: float, share: float) -> None:
    drawn = features(5000, spread)
    assert location_share(drawn) == pytest.approx(plain_share(drawn), abs=1e-3)
    assert location_share(drawn) == pytest.approx(share, abs=5e-3)


@pytest.mark.parametrize(("spread", "share"), [(0.0, 0.0), (0.5, 0.2), (1.0, 0.5)])
def test_few_samples_do_not_make_it_larger(spread: float, share: float) -> None:
    drawn = [features(5, spread, seed) for seed in range(300)]
    corrected = sum(map(location_share, drawn)) / len(drawn)
    plain = sum(map(plain_share, drawn)) / len(drawn)
    # What chance leaves below zero is counted as zero, hence a little above.
    assert corrected == pytest.approx(share, abs=0.03)
    assert plain > share + 0.08


def test_places_seen_unequally_often_count_the_same() -> None:
    places = some_places(40_000, 3)
    counts = torch.bincount(places.flatten())
    assert counts.max() > 2 * counts.min()
    assert location_share(at(features(40_000, 1.0), places), places) == pytest.approx(0.5, abs=0.02)


def test_features_that_are_the_same_at_a_place_have_share_one_and_constant_ones_none() -> None:
    places = torch.randn(PATCHES, DIM)
    assert location_share(places.expand(6, -1, -1)) == pytest.approx(1.0, abs=1e-12)
    assert location_share(torch.full((6, PATCHES, DIM), 0.1)) == 0.0
    assert location_share(torch.randn(600, 1, DIM).expand(-1, PATCHES, -1)) == pytest.approx(0.0, abs=1e-12)


def test_order_and_chunks_do_not_matter() -> None:
    drawn, places = features(50, 1.0), some_places(50, 4)
    seen = at(drawn, places)
    whole = location_share(seen, places, PATCHES)
    shuffled = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    share = LocationShare(PATCHES, DIM)
    for rows in shuffled.split(7):
        order = torch.randperm(4)
        share.add(seen[rows][:, order], places[rows][:, order])
    assert share.value() == pytest.approx(whole, rel=1e-12)


def test_a_full_grid_needs_no_places() -> None:
    drawn = features(20, 0.5)
    places = torch.arange(PATCHES).expand(20, -1)
    assert location_share(drawn) == pytest.approx(location_share(drawn, places), rel=1e-12)


def test_places_never_seen_are_left_out() -> None:
    drawn = features(30, 1.0)
    apart = torch.arange(PATCHES).expand(30, -1) * 5 + 2
    assert location_share(drawn, apart, 100) == pytest.approx(location_share(drawn), rel=1e-12)


def test_a_place_that_an_image_has_twice_counts_once() -> None:
    drawn = features(8, 0.5)
    twice = torch.cat((torch.arange(PATCHES), torch.arange(4), torch.arange(2))).expand(8, -1)
    assert location_share(at(drawn, twice), twice) == pytest.approx(location_share(drawn), rel=1e-12)


def test_a_common_offset_costs_no_digits() -> None:
    drawn = features(200, 0.5)
    offset = 1e8 * torch.randn(DIM, dtype=torch.float64)
    share = LocationShare(PATCHES, DIM)
    for part in (drawn + offset).split(30):
        share.add(part)
    assert share.value() == pytest.approx(location_share(drawn), rel=1e-5)


def test_too_few_samples_have_no_share() -> None:
    assert math.isnan(LocationShare(PATCHES, DIM).value())
    assert math.isnan(location_share(torch.randn(1, PATCHES, DIM)))
    assert math.isnan(location_share(torch.randn(9, 1, DIM)))
    empty = LocationShare(PATCHES, DIM)
    empty.add(torch.empty(0, PATCHES, DIM))
    assert math.isnan(empty.value())
