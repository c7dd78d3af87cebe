"""Curves on their way from the log to the page: nothing that matters is lost, nothing grows without bound."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexpredict.progress import duration
from flexpredict.reports.curves import curve_data, drawn_sections
from flexpredict.reports.numbers import format_number, percent
from flexpredict.runs.run_record import Run
from flexpredict.runs.series import Series


def series_of(values: Iterable[float]) -> Series:
    series = Series()
    for step, value in enumerate(values, start=1):
        series.add(step, value)
    return series


def run_of(key: str, values: Iterable[float]) -> Run:
    return Run("run", {"batch_size": 8}, series={key: series_of(values)})


def drawn(key: str, values: Iterable[float]) -> Any:
    return curve_data([run_of(key, values)], ["run"])["charts"][key]["series"][0]


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=50), st.integers(1, 60))
def test_downsampling_keeps_extremes_mean_and_count_of_what_was_not_finite(few: list[float], times: int) -> None:
    values = np.tile(few, times) if few else np.zeros(0)
    values = values + np.where(np.arange(values.size) == values.size // 2, 1.5, 0.0)
    series = series_of(values.tolist())
    finite = values[np.isfinite(values)]
    points = series.points()
    assert len(points) <= 600
    assert sum(bucket.gaps for bucket in series.buckets) == values.size - finite.size
    assert sum(bucket.count for bucket in series.buckets) == finite.size
    assert sum(bucket.value_total for bucket in series.buckets) == pytest.approx(finite.sum(), abs=1e-3)
    if finite.size:
        shown = [value for _, value in points]
        assert (min(shown), max(shown)) == (finite.min(), finite.max())
    assert all(values[int(step) - 1] == value for step, value in points), "every point drawn was logged"
    assert [step for step, _ in points] == sorted(step for step, _ in points)


@pytest.mark.parametrize("spike", [0, 1, 1234, 7777, 9999])
def test_a_single_spike_in_a_long_run_is_still_drawn(spike: int) -> None:
    values = [0.1] * 10_000
    values[spike] = 2.0
    assert (spike + 1, 2.0) in series_of(values).points()


def test_up_to_six_hundred_points_nothing_is_lost() -> None:
    values = np.sin(np.arange(599) ** 2).tolist()
    assert series_of(values).points() == list(enumerate(values, start=1))


def test_steps_logged_again_after_resuming_replace_the_earlier_ones() -> None:
    series = series_of([1.0] * 100)
    for step in range(60, 121):
        series.add(step, 2.0)
    assert series.points() == [(step, 1.0 if step < 60 else 2.0) for step in range(1, 121)]


def test_a_line_is_broken_where_values_are_not_finite() -> None:
    assert drawn("loss", [1, 2, math.nan, math.inf, 3])["raw"] == [[1, 2, 3, 4, 5], [1, 2, None, None, 3]]


def test_gaps_in_a_long_run_break_the_smoothed_line_too() -> None:
    values = [1.0] * 5000
    values[2000] = math.nan
    found = drawn("loss", values)
    for steps, shown in (found["raw"], found["means"]):
        assert shown.count(None) == 1 and steps == sorted(set(steps))
        assert 1990 < steps[shown.index(None)] < 2030


def test_a_long_run_has_means_to_smooth_and_a_short_one_its_own_values() -> None:
    assert "means" not in drawn("loss", [1.0, 2.0])
    steps, means = drawn("loss", np.arange(1, 1201).tolist())["means"]
    assert np.allclose(steps, means) and len(steps) <= 300, "the mean of a straight line lies on it"


def test_shares_are_shown_in_percent_however_they_were_logged() -> None:
    for values in ([0.1, 0.625], [10.0, 62.5]):
        assert drawn("knn_accuracy", values)["raw"][1] == [10, 62.5]
        (section,) = drawn_sections([run_of("knn_accuracy", values)])
        assert section.charts[0].last == ("62.5%",)
        assert section.charts[0].summary == "k-NN accuracy: lowest 10.0% at step 1, highest 62.5% at step 2"


def test_a_chart_has_a_place_for_each_run_also_for_those_without_the_metric() -> None:
    data = curve_data([run_of("loss", [1.0]), run_of("lr", [0.1])], ["a", "b"])
    assert [run["label"] for run in data["runs"]] == ["a", "b"]
    assert [series is None for series in data["charts"]["loss"]["series"]] == [False, True]
    assert [series is None for series in data["charts"]["lr"]["series"]] == [True, False]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (0.12345, "0.123"),
        (24.02, "24.0"),
        (0.38, "0.380"),
        (50.0, "50"),
        (999.9, "1.00k"),
        (12_345, "12.3k"),
        (999_999, "1M"),
        (6016, "6.02k"),
        (3.84e7, "38.4M"),
        (8e-4, "8.00×10⁻⁴"),
        (-0.5, "−0.500"),
        (1e-6, "1.00×10⁻⁶"),
        (2.5e18, "2.5×10¹⁸"),
        (math.nan, "not finite"),
    ],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0%"), (0.5, "50.0%"), (0.4 + 1e-16, "40.0%"), (1, "100%")])
def test_shares_have_one_precision_whether_whole_or_not(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (41.6, "42 s"),
        (400, "6 min 40 s"),
        (9660, "2 h 41 min"),
        (59.7, "1 min 0 s"),
        (3599.9, "1 h 0 min"),
        (86_399, "1 d 0 h"),
        (442_800, "5 d 3 h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
