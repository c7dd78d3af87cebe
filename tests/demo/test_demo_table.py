"""Means, paired differences, and what is said about them."""

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from flexpredict.demo.table import MEASURES, ROWS, Comparison, print_comparison


def comparison(seeds: int, spread: float = 1.0) -> Comparison:
    """Seeds move both arms alike; StoP is ahead by 3, except for location share, which it lowers by 50."""
    random = np.random.default_rng(0)
    measured: dict[str, list[dict[str, float]]] = {"raw pixels": [dict.fromkeys(MEASURES, 10.0)]}
    measured["untrained"] = [dict.fromkeys(MEASURES, 20.0)]
    base = [{name: 40 + 9 * random.normal() for name in MEASURES} for _ in range(seeds)]
    measured["sin-cos"] = [numbers | {"location share": 70.0} for numbers in base]
    measured["StoP"] = [
        {name: value + 3 + spread * random.normal() for name, value in numbers.items()}
        | {"location share": 20 + seed}
        for seed, numbers in enumerate(base)
    ]
    return Comparison(measured)


@pytest.mark.parametrize("seeds", [2, 3, 7])
def test_a_difference_is_more_than_chance_where_the_paired_t_test_says_so(seeds: int) -> None:
    compared = comparison(seeds)
    for measure in MEASURES:
        stop, sincos = ([numbers[measure] for numbers in compared.measured[row]] for row in ("StoP", "sin-cos"))
        difference, test = compared.difference(measure), stats.ttest_rel(stop, sincos)
        low, high = test.confidence_interval(0.95)
        assert difference.mean == pytest.approx(np.mean(stop) - np.mean(sincos))
        assert difference.half == pytest.approx((high - low) / 2, rel=1e-3)
        assert bool(difference.sign) == (test.pvalue < 0.05)
    assert compared.difference("location share").sign == -1


def test_with_one_seed_nothing_is_called_more_than_chance() -> None:
    compared = comparison(1)
    assert not any(compared.difference(measure).sign for measure in MEASURES)
    assert "One seed" in compared.in_words() and "more than chance" not in compared.in_words()
    described = compared.describe()["stop_minus_sincos"]["location share"]
    assert described["half_of_95_percent_interval"] is None and not described["more_than_chance"]


def test_with_two_seeds_it_is_said_that_intervals_are_wide() -> None:
    assert "Two seeds give wide intervals" in comparison(2).in_words()
    assert "wide" not in comparison(3).in_words()


def test_differences_that_are_more_than_chance_are_marked_and_named() -> None:
    compared = comparison(5, spread=0.1)
    console = Console(record=True, width=80, soft_wrap=True)
    print_comparison(console, compared)
    lines = console.export_text().splitlines()
    table = [line for line in lines if any(line.strip().startswith(title) for title in MEASURES.values())]
    assert len(table) == len(MEASURES) and all("*" in line and len(line.rstrip()) <= 80 for line in table)
    assert f"more than chance in: {'; '.join(MEASURES.values())}" in compared.in_words()
    assert any(all(row in line for row in ROWS) for line in lines)


def test_it_is_said_where_raw_pixels_are_better_than_every_encoder() -> None:
    compared = comparison(1)
    assert "Raw pixels" not in compared.in_words()
    compared.measured["raw pixels"][0].update({"20-NN": 99.0, "location share": 99.0, "lost, 1 patch": 99.0})
    assert "Raw pixels are better than every encoder here in: class, k-NN." in compared.in_words()
