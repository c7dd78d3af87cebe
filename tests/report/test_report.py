"""The page of a run: what it shows, what it withstands, and the small arithmetic of its charts."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flexpredict.errors import UserError
from flexpredict.progress import duration
from flexpredict.reports import charts, write_report
from flexpredict.reports.charts import (
    Axis,
    Metric,
    chart,
    format_number,
    linear_axis,
    smooth,
    step_axis,
    tick_labels,
    tick_values,
)
from flexpredict.reports.sections import SECTIONS
from flexpredict.runs.run_record import read_run
from flexpredict.runs.series import Series

CONFIG = {
    "data": "/photos",
    "model": "vit_small_patch16_224",
    "epochs": 10,
    "batch_size": 64,
    "positions": {"kind": "stochastic", "noise_std": 0.25},
    "optimizer": {"lr": 8e-4, "betas": [0.9, 0.95]},
}
VOID = {"meta", "link"}


def make_run(folder: Path, lines: Iterable[dict[str, Any]] = (), config: Any = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def page_of(run: Path) -> str:
    return write_report(run).read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags in order, text and attributes of a page; fails on a tag that is not closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def series_of(values: Iterable[float]) -> Series:
    series = Series()
    for step, value in enumerate(values, start=1):
        series.add(step, value)
    return series


def path_of(figure: str, name: str) -> str:
    found = re.search(rf'class="{name}" d="([^"]*)"', figure)
    return found[1] if found else ""


def draw(values: Iterable[float], metric: Metric = Metric("loss", "Loss")) -> str:  # noqa: B008 (it is frozen)
    series = series_of(values)
    return chart(series, metric, step_axis([series]))


# The page


def full_lines(count: int) -> list[dict[str, Any]]:
    keys = [metric.key for section in SECTIONS for metric in section.metrics]
    return [{"step": i, "epoch": i / 10, **dict.fromkeys(keys, 1 / i)} for i in range(1, count + 1)]


def test_the_page_is_balanced_and_draws_every_metric(tmp_path: Path) -> None:
    page = Page(page_of(make_run(tmp_path, full_lines(150))))
    for section in SECTIONS:
        assert section.title in page.text
        assert all(metric.title in page.text for metric in section.metrics)
    assert page.tags.count("svg") == sum(len(section.metrics) for section in SECTIONS)
    assert "vit_small_patch16_224 on /photos, stochastic positions" in page.text
    assert "0.9, 0.95" in page.text


def test_the_location_share_is_shown_with_how_to_read_it(tmp_path: Path) -> None:
    lines = [{"step": step, "loss": 1.0, "location_share": 0.5 - step / 100} for step in range(1, 31)]
    page = Page(page_of(make_run(tmp_path, lines)))
    assert "What, or only where?" in page.text and "climbs past 60%" in page.text
    assert "20%" in page.text and "49% at the start" in page.text


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = page_of(make_run(tmp_path, full_lines(150)))
    assert not re.search(r"https?://|@import|url\(", text)
    loads = {value for name, value in Page(text).attributes if name in {"src", "href", "srcset", "data", "action"}}
    assert loads <= {"data:,"}
    assert "default-src 'none'" in text


def test_the_security_policy_admits_the_script_of_the_page_and_no_other(tmp_path: Path) -> None:
    text = page_of(make_run(tmp_path))
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in text


def test_hostile_text_cannot_become_markup(tmp_path: Path) -> None:
    hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>' &amp;"
    run = make_run(
        tmp_path / "run <b>&",
        [{"step": 1, "loss": 1.0, hostile: 2.0}],
        {"model": hostile, "data": [hostile], "positions": {"kind": hostile}, hostile: {hostile: hostile}},
    )
    (run / "environment.json").write_text(json.dumps({hostile: hostile}))
    (run / "warnings.jsonl").write_text(json.dumps({"step": 1, "text": hostile}))
    (run / "skipped.jsonl").write_text(json.dumps({"path": hostile, "reason": hostile}))
    (run / "results.json").write_text(json.dumps([{hostile: hostile}]))
    text = page_of(run)
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not {name for name, _ in page.attributes if name.startswith("on")}
    assert page.text.count(hostile) >= 10


def test_file_names_that_are_not_text_are_shown_and_cannot_reorder_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "skipped.jsonl").write_text(json.dumps({"path": "a\udcff\u202egnp.exe\x00\n", "reason": "é ok"}) + "\n")
    text = page_of(run)
    assert "a\\udcff\\u202egnp.exe\\x00\\n" in text
    assert "é ok" in text


def test_a_torn_last_line_is_passed_over_in_silence_and_a_torn_inner_line_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    assert "could not be read" not in page_of(run)
    assert read_run(run).series["loss"].points() == [(1, 3.0), (2, 2.0)]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "loss": 1.0}\n{"step": 5, "loss": 1.5}\n')
    assert "1 line of metrics.jsonl could not be read" in page_of(run)
    assert read_run(run).series["loss"].last == 1.5


def test_a_run_without_metrics_gives_a_page_that_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with_empty_file = page_of(run)
    (run / "metrics.jsonl").unlink()
    for page in (Page(with_empty_file), Page(page_of(run))):
        assert "Nothing has been logged yet" in page.text
        assert "svg" not in page.tags
        assert "Recipe" in page.text


@pytest.mark.parametrize("value", [0.5, 0, -3, 1e-300, 1e99, math.nan, math.inf, 10**400, None])
def test_a_single_line_gives_a_page_whatever_its_value(tmp_path: Path, value: float | None) -> None:
    page = Page(page_of(make_run(tmp_path, [{"step": 7, "loss": value, "data_wait": value}])))
    assert page.tags.count("svg") == 2
    coordinates = " ".join(value for name, value in page.attributes if name in {"d", "style"})
    assert "nan" not in coordinates and "inf" not in coordinates


def test_lines_of_any_shape_are_withstood(tmp_path: Path) -> None:
    lines = [{"loss": 1.0}, {"step": "x", "loss": "low"}, {"step": 3, "flag": True, "nested": {"a": 1}}, {}]
    run = make_run(tmp_path, lines, {"batch_size": "many"})
    (run / "metrics.jsonl").open("a").write('[1, 2]\nnull\n\n"text"\n')
    record = read_run(run)
    assert list(record.series) == ["loss"]
    assert record.unreadable == ["3 lines of metrics.jsonl could not be read."]
    Page(page_of(run))


def test_a_loss_that_ends_not_finite_is_not_reported_as_finite(tmp_path: Path) -> None:
    page = Page(page_of(make_run(tmp_path, [{"step": 1, "loss": 0.5}, {"step": 2, "loss": math.nan}])))
    assert "Final lossnot finite" in page.text.replace("\n", "")


def test_unknown_keys_are_drawn_apart_and_skipped_images_only_if_any(tmp_path: Path) -> None:
    page = Page(page_of(make_run(tmp_path, [{"step": 1, "loss": 1.0, "my_gate": 0.5, "skipped": 0}])))
    assert page.text.index("Other") < page.text.index("my_gate")
    assert "Images skipped" not in page.text
    page = Page(page_of(make_run(tmp_path, [{"step": 1, "skipped": 2}])))
    assert "Images skipped" in page.text and "Other" not in page.text


def test_images_seen_and_time_follow_from_steps_batch_and_speed(tmp_path: Path) -> None:
    lines = [{"step": 50 * i, "images_per_second": 32.0} for i in range(1, 5)]
    repeated = [*lines, {"step": 150, "images_per_second": 16.0}, {"step": 200, "images_per_second": 8.0}]
    record = read_run(make_run(tmp_path, repeated))
    assert record.images == 200 * 64
    assert record.seconds == pytest.approx(200 * 64 / 32)
    text = Page(page_of(tmp_path)).text
    assert "12.8k" in text and "6 min 40 s" in text


def test_repeated_warnings_are_told_once_with_their_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    warnings = [{"step": step, "text": "Too hot."} for step in (10, 20, 30)] + [{"step": 25, "text": "Too cold."}]
    (run / "warnings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in warnings))
    text = Page(page_of(run)).text
    assert text.count("Too hot.") == 1
    assert "3 times, step 10 to 30" in text and "Too cold. step 25" in text


def test_long_lists_are_cut_and_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "skipped.jsonl").write_text(
        "".join(json.dumps({"path": f"p{i}", "reason": "r"}) + "\n" for i in range(250))
    )
    (run / "warnings.jsonl").write_text("".join(json.dumps({"text": f"w{i}"}) + "\n" for i in range(80)))
    text = Page(page_of(run)).text
    assert "250 could not be read and were left out" in text and "and 150 more" in text and "p99" in text
    assert "p100" not in text
    assert "and 30 more in warnings.jsonl" in text


def test_results_are_a_table_whether_rows_or_nested(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "results.json").write_text(json.dumps([{"task": "linear", "value": 0.71236}, {"task": "k-NN", "k": 20}]))
    assert "linear0.7124" in Page(page_of(run)).text
    (run / "results.json").write_text(json.dumps({"clevr": {"count": 0.861, "distance": 0.4}}))
    assert "clevr.distance0.4" in Page(page_of(run)).text


def test_a_broken_optional_file_is_told_on_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "environment.json").write_text("{")
    assert "environment.json could not be read" in page_of(run)


def test_the_page_does_not_grow_with_the_run(tmp_path: Path) -> None:
    def size(name: str, count: int) -> int:
        lines = ({"step": i * 1000 / count, "loss": math.sin(i), "lr": math.cos(i)} for i in range(count))
        return len(page_of(make_run(tmp_path / name, lines)))

    assert size("long", 19_000) < 1.1 * size("short", 1_190)


def test_writing_leaves_nothing_else_behind_and_replaces_an_old_page(tmp_path: Path) -> None:
    run = make_run(tmp_path, [{"step": 1, "loss": 1.0}])
    (run / "report.html").write_text("old")
    before = {path.name for path in run.iterdir()}
    assert write_report(run) == run / "report.html"
    assert {path.name for path in run.iterdir()} == before
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_bad_folders_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        write_report(tmp_path / "missing")
    with pytest.raises(UserError, match=r"config\.yaml is missing"):
        write_report(tmp_path)
    for text in ("a: [", "- just\n- a list\n", ""):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UserError, match=r"config\.yaml"):
            write_report(tmp_path)
    (tmp_path / "config.yaml").write_text("model: vit\n")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match="Cannot write"):
        write_report(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "report.html"}


# Series


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


# Charts


def test_lines_are_broken_where_values_are_not_finite() -> None:
    figure = draw([1, 2, math.nan, math.nan, 3, 4, math.inf, 5])
    pieces = path_of(figure, "line").split("M")[1:]
    assert [piece.count(",") for piece in pieces] == [2, 2, 1]
    assert pieces[-1].endswith("h0"), "a lone point has no length and is drawn by its round cap"
    assert path_of(figure, "gap").count("M") == 3
    assert "3 not finite" in figure


def test_gaps_in_a_long_run_break_the_smoothed_line_too() -> None:
    values = [1.0] * 5000
    values[2000] = math.nan
    figure = draw(values)
    assert path_of(figure, "line").count("M") == path_of(figure, "raw").count("M") == 2
    assert path_of(figure, "gap").count("M") == 1


def test_a_smoothed_line_is_added_only_where_points_are_many_and_noisy() -> None:
    assert not path_of(draw([0.5] * 99), "raw")
    assert path_of(draw([0.5] * 100), "raw")
    assert not path_of(draw([0.5] * 100, Metric("lr", "Learning rate", noisy=False)), "raw")


def test_points_lie_where_their_axes_say() -> None:
    series = Series()
    for step, value in ((0, 0.0), (50, 10.0), (100, 5.0)):
        series.add(step, value)
    figure = chart(series, Metric("a", "A"), step_axis([series]))
    low, high = (float(end) for end in re.search(r'data-y="(\S+) (\S+)"', figure).groups())  # type: ignore[union-attr]
    places = [tuple(map(float, pair.split(","))) for pair in path_of(figure, "line")[1:].split(" ")]
    for (across, down), (x, y) in zip(places, ((0, 0), (50, 10), (100, 5)), strict=True):
        assert across == pytest.approx(charts.WIDTH * x / 100, abs=0.06)
        assert low + (high - low) * (1 - down / charts.HEIGHT) == pytest.approx(y, abs=0.01)


def test_rare_spikes_are_drawn_on_a_logarithmic_axis() -> None:
    figure = draw([0.5] * 200 + [500.0] + [0.5] * 200)
    assert "Logarithmic scale" in figure and 'data-y="0.1 1000.0"' in figure
    assert "Logarithmic" not in draw([0.0] * 200 + [500.0]), "zero has no logarithm"


def test_shares_are_shown_in_per_cent_however_they_were_logged() -> None:
    metric = Metric("knn_accuracy", "k-NN accuracy", share=True)
    assert "<output>62.5%</output>" in draw([0.1, 0.625], metric)
    assert "<output>62.5%</output>" in draw([10.0, 62.5], metric)


def test_smoothing_reproduces_straight_lines_up_to_both_ends_and_averages_noise() -> None:
    x = np.sort(np.abs(np.sin(np.arange(200.0))))
    weight = 1 + np.cos(np.arange(200.0)) ** 2
    np.testing.assert_allclose(smooth(x, 3 * x - 1, weight, 0.02), 3 * x - 1, atol=1e-9)
    zigzag = np.where(np.arange(200) % 2 == 0, 1.0, -1.0)
    even = np.linspace(0, 1, 200)
    assert np.abs(smooth(even, zigzag, np.ones(200), 0.02))[20:-20].max() < 0.01
    np.testing.assert_allclose(smooth(np.array([0.5]), np.array([7.0]), np.ones(1), 0.02), [7.0])


# Numbers and ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0.996, 1, [0.996, 0.997, 0.998, 0.999, 1.0]),
        (-3, 3, [-2, 0, 2]),
        (0.13, 0.42, [0.15, 0.2, 0.25, 0.3, 0.35, 0.4]),
        (0, 150_000, [0, 50_000, 100_000, 150_000]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert tick_values(low, high) == ticks


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_ticks_are_few_evenly_spaced_and_within_the_axis(low: float, span: float) -> None:
    axis = linear_axis(low, low + span)
    assert 1 <= len(axis.ticks) <= 6
    margin = 1e-5 * (axis.high - axis.low)
    assert all(axis.low - margin <= tick <= axis.high + margin for tick in axis.ticks)
    assert len(set(axis.labels)) == len(axis.labels), "no two ticks read the same"
    if len(axis.ticks) > 2:
        gaps = np.diff(axis.ticks)
        np.testing.assert_allclose(gaps, gaps[0], rtol=1e-3)
        mantissa = gaps[0] / 10.0 ** math.floor(math.log10(gaps[0]) + 1e-4)
        assert min(abs(mantissa - nice) for nice in (1, 2, 5)) < 1e-2


def test_steps_get_whole_ticks() -> None:
    assert step_axis([series_of([1.0, 2.0])]).ticks == [0, 1, 2]
    assert step_axis([]).ticks == [0, 1]


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-12, 3e9])
def test_a_flat_line_gets_an_axis_around_it(value: float) -> None:
    axis = linear_axis(value, value)
    assert axis.low <= value <= axis.high and axis.low < axis.high
    assert isinstance(axis, Axis) and 0 <= axis.place(value) <= 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (0.12345, "0.123"),
        (999.9, "1k"),
        (12_345, "12.3k"),
        (999_999, "1M"),
        (3.84e7, "38.4M"),
        (8e-4, "8×10⁻⁴"),
        (-0.5, "−0.5"),
        (1e-6, "1×10⁻⁶"),
        (2.5e18, "2.5×10¹⁸"),
        (math.nan, "not finite"),
    ],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert format_number(value) == text


def test_tick_labels_share_their_unit_and_decimals() -> None:
    assert tick_labels([0, 500, 1000, 1500]) == ["0", "0.5k", "1.0k", "1.5k"]
    assert tick_labels([0, 2e-4, 4e-4]) == ["0", "2×10⁻⁴", "4×10⁻⁴"]
    assert tick_labels([-0.5, 0, 0.5]) == ["−0.5", "0", "0.5"]
    assert tick_labels([0, 20, 40], "%") == ["0%", "20%", "40%"]


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
