"""The curves of runs in the form that the page draws, of limited size for runs of any length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flexpredict.reports.numbers import format_number
from flexpredict.reports.sections import Metric, Section, with_others
from flexpredict.runs.run_record import Run, number
from flexpredict.runs.series import Bucket, Point, Series

_DIGITS = 7  # of values on the page: more than a screen can show


@dataclass(frozen=True)
class Chart:
    """The text about one metric on the page; the script draws its curves."""

    metric: Metric
    last: tuple[str, ...]  # value of each run, empty if not logged
    summary: str  # in words, for screen readers
    gaps: int  # values that were not finite


@dataclass(frozen=True)
class DrawnSection:
    """A section with its charts that have data."""

    section: Section
    charts: tuple[Chart, ...]


def drawn_sections(runs: Sequence[Run]) -> list[DrawnSection]:
    """Sections with everything that was logged, except the count of skipped images if it is zero."""
    keys = list(dict.fromkeys(key for run in runs for key in run.series))
    drawn = []
    for section in with_others(keys):
        charts = [_chart(metric, runs) for metric in section.metrics if _worth_drawing(metric, runs)]
        if charts:
            drawn.append(DrawnSection(section, tuple(charts)))
    return drawn


def curve_data(runs: Sequence[Run], labels: Sequence[str]) -> dict[str, Any]:
    """The data that the script draws. Points are [steps, values]; values that are not finite are null."""
    charts = {
        chart.metric.key: _chart_data(chart.metric, runs) for drawn in drawn_sections(runs) for chart in drawn.charts
    }
    return {
        "runs": [
            {
                "label": label,
                "batch": number(run.config.get("batch_size")),
                "minutes": _columns((step, seconds / 60) for step, seconds in run.clock.points()),
            }
            for run, label in zip(runs, labels, strict=True)
        ],
        "charts": charts,
    }


def _chart(metric: Metric, runs: Sequence[Run]) -> Chart:
    found = [run.series.get(metric.key) for run in runs]
    shown = [series for series in found if series is not None]
    points = [
        (step, value * factor)
        for series in shown
        for factor in [_factor(metric, series)]
        for step, value in series.points()
    ]
    return Chart(
        metric,
        tuple("" if series is None else _last(metric, series) for series in found),
        _summary(metric, points),
        sum(bucket.gaps for series in shown for bucket in series.buckets),
    )


def _worth_drawing(metric: Metric, runs: Sequence[Run]) -> bool:
    found = [run.series[metric.key] for run in runs if metric.key in run.series]
    return bool(found) and (metric.key != "skipped" or any(value for series in found for _, value in series.points()))


def _last(metric: Metric, series: Series) -> str:
    if series.last is None:
        return "–"
    return format_number(series.last * _factor(metric, series), metric.digits, metric.unit)


def _factor(metric: Metric, series: Series) -> float:
    return metric.factor(value for _, value in series.points())


def _summary(metric: Metric, points: Sequence[Point]) -> str:
    if not points:
        return f"{metric.title}: no finite value"
    extremes = min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])
    lowest, highest = (
        f"{format_number(value, metric.digits, metric.unit)} at step {format_number(step)}"
        for step, value in extremes
    )
    return f"{metric.title}: lowest {lowest}, highest {highest}"


def _chart_data(metric: Metric, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "title": metric.title,
        "unit": metric.unit,
        "share": metric.share,
        "noisy": metric.noisy,
        "digits": metric.digits,
        "series": [_series_data(metric, run.series.get(metric.key)) for run in runs],
    }


def _series_data(metric: Metric, series: Series | None) -> dict[str, Any] | None:
    """raw: the points of the line. means: of the buckets of a long run, the input for smoothing."""
    if series is None:
        return None
    factor, buckets = _factor(metric, series), series.buckets
    data = {"raw": _columns(_raw(buckets), factor)}
    if any(bucket.count > 1 for bucket in buckets):
        data["means"] = _columns((point for bucket in buckets for point in _mean(bucket)), factor)
    return data


def _raw(buckets: Iterable[Bucket]) -> Iterator[tuple[float, float | None]]:
    for bucket in buckets:
        points: list[tuple[float, float | None]] = list(bucket.extremes)
        if bucket.gaps:
            points.append((bucket.gap_step, None))
        yield from sorted(points, key=lambda point: point[0])


def _mean(bucket: Bucket) -> Iterator[tuple[float, float | None]]:
    if bucket.count:
        yield bucket.mean
    if bucket.gaps:
        # After the mean, so that the line breaks there; log lines are at least one step apart.
        yield max(bucket.gap_step, bucket.mean[0] + 0.25 if bucket.count else bucket.start), None


def _columns(points: Iterable[tuple[float, float | None]], factor: float = 1) -> list[list[float | None]]:
    steps: list[float | None] = []
    values: list[float | None] = []
    for step, value in points:
        steps.append(_short(round(step, 6)))
        values.append(None if value is None else _short(float(f"{value * factor:.{_DIGITS}g}")))
    return [steps, values]


def _short(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 1e15 else value
