"""Line charts as inline SVG."""

import html
import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flexpredict.runs.series import Bucket, Point, Series, is_finite

Array = npt.NDArray[np.float64]

MANY_POINTS = 100  # from here on a smoothed line is drawn over the raw one
FEW_POINTS = 40  # up to here every point gets a dot
SMOOTHING = 0.02  # standard deviation of the smoothing window, as a share of the time axis
WIDTH, HEIGHT = 1000, 400  # of the view box, which the page stretches to whatever room there is


@dataclass(frozen=True)
class Metric:
    """How one logged quantity is drawn and said."""

    key: str
    title: str
    meaning: str = ""
    share: bool = False  # 0..1, shown in per cent
    noisy: bool = True  # a schedule is exact: smoothing would only round its corners
    digits: int = 3

    @property
    def unit(self) -> str:
        return "%" if self.share else ""

    def factor(self, values: Iterable[float]) -> float:
        """From what was logged to what is shown; a share well above 1 was logged in per cent already."""
        return 100 if self.share and max(values, default=0) < 1.5 else 1


def escape(value: object) -> str:
    """Text that cannot become markup, nor reorder or hide the text around it by invisible characters."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    return html.escape(visible)


def format_number(value: float, digits: int = 3, unit: str = "") -> str:
    """`12.3k`, `0.123`, `8×10⁻⁴`: SI prefixes where they are customary, powers of ten elsewhere."""
    if not is_finite(value):
        return "not finite"
    # Rounded before the prefix is chosen, or 999.9 would be written 1000 and not 1k.
    value = float(f"{value:.{digits - 1}e}")
    size = abs(value)
    if value != 0 and (size < 1e-3 or size >= 1e15):
        exponent = math.floor(math.log10(size))
        return f"{_plain(value / 10.0**exponent, digits)}×10{_superscript(exponent)}{unit}"
    scale, prefix = _prefix(size)
    return _plain(value / scale, digits) + prefix + unit


def _plain(value: float, digits: int) -> str:
    return f"{value:.{digits}g}".replace("-", "−")


def _superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _prefix(size: float) -> tuple[float, str]:
    for scale, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= scale:
            return scale, sign
    return 1.0, ""


@dataclass(frozen=True)
class Axis:
    """From values to places between 0 and 1, with labelled ticks."""

    low: float
    high: float
    ticks: list[float]
    labels: list[str]
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return (value - self.low) / (self.high - self.low)


def linear_axis(low: float, high: float, unit: str = "", most: int = 6, whole: bool = False) -> Axis:
    """An axis from `low` to `high`, widened if they are the same, with at most `most` ticks."""
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, 1e-30):
        low, high = (low - 0.1 * largest, high + 0.1 * largest) if largest > 1e-29 else (0.0, 1.0)
    ticks = tick_values(low, high, most, whole)
    return Axis(low, high, ticks, tick_labels(ticks, unit))


def log_axis(low: float, high: float, unit: str = "") -> Axis:
    """An axis of whole decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    ticks = [10.0**exponent for exponent in range(first, last + 1, math.ceil((last - first) / 5))]
    return Axis(10.0**first, 10.0**last, ticks, [format_number(tick, unit=unit) for tick in ticks], log=True)


def tick_values(low: float, high: float, most: int = 6, whole: bool = False) -> list[float]:
    """At most `most` round numbers (1, 2 or 5 times a power of ten apart; `whole`: integers) from `low` to `high`."""
    rough = (high - low) / most
    exponent = math.floor(math.log10(rough))
    spacings = (m * 10.0**e for e in itertools.count(exponent) for m in (1, 2, 5))
    for spacing in spacings:
        if whole and spacing < 1:
            continue
        # The margin keeps a tick at an end that rounding has moved by a hair.
        first, last = math.ceil(low / spacing - 1e-6), math.floor(high / spacing + 1e-6)
        if last - first < most:
            decimals = -math.floor(math.log10(spacing) + 1e-6)
            return [round(i * spacing, decimals) + 0.0 for i in range(first, last + 1)]
    raise AssertionError("the spacings never end")


def tick_labels(ticks: Sequence[float], unit: str = "") -> list[str]:
    """One prefix or power of ten, and one number of decimals, for all ticks of an axis."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if largest == 0:
        return [f"0{unit}" for _ in ticks]
    scale, suffix = _prefix(largest)
    if largest < 1e-3 or largest >= 1e15:
        exponent = math.floor(math.log10(largest) + 1e-6)
        scale, suffix = 10.0**exponent, f"×10{_superscript(exponent)}"
    spacing = min((b - a for a, b in itertools.pairwise(ticks)), default=largest) / scale
    decimals = max(0, -math.floor(math.log10(spacing) + 1e-6))
    return [
        f"{tick / scale:.{decimals}f}".replace("-", "−") + suffix + unit if tick else f"0{unit}" for tick in ticks
    ]


def smooth(x: Array, y: Array, weight: Array, bandwidth: float) -> Array:
    """A straight line fitted around every point; a moving average would lag and bend at both ends."""
    distance = x[None, :] - x[:, None]
    kernel = weight[None, :] * np.exp(-0.5 * (distance / bandwidth) ** 2)
    s0, s1, s2 = (np.sum(kernel * distance**power, axis=1) for power in (0, 1, 2))
    t0, t1 = (np.sum(kernel * distance**power * y[None, :], axis=1) for power in (0, 1))
    determinant = s0 * s2 - s1**2
    enough = determinant > 1e-9 * s0 * np.maximum(s2, 1e-12)
    fitted: Array = np.where(enough, (s2 * t0 - s1 * t1) / np.where(enough, determinant, 1), t0 / s0)
    return fitted


def step_axis(series: Iterable[Series]) -> Axis:
    """One time axis for all charts of a run, so that they can be read side by side."""
    ends = [step for one in series for bucket in one.buckets for step in _steps(bucket)]
    return linear_axis(min([0.0, *ends]), max([1.0, *ends]), most=5, whole=True)


def _steps(bucket: Bucket) -> list[float]:
    return [bucket.start] + [step for step, _ in bucket.extremes] + ([bucket.gap_step] if bucket.gaps else [])


def chart(series: Series, metric: Metric, x: Axis) -> str:
    """One figure: caption, last value and plot. Text is HTML around the drawing, so that it keeps its size."""
    buckets = series.buckets
    factor = metric.factor(value for _, value in series.points())
    if factor != 1:
        buckets = [_scaled(bucket, factor) for bucket in buckets]
    y = _value_axis(buckets, metric.unit)
    last = "–" if series.last is None else format_number(series.last * factor, metric.digits, metric.unit)
    lines = [
        '<figure class="chart">',
        f"<figcaption><b>{escape(metric.title)}</b><output>{escape(last)}</output>",
        f"<small>{_notes(metric, y, buckets)}</small></figcaption>",
        f'<div class="plot" data-x="{x.low!r} {x.high!r}" data-y="{y.low!r} {y.high!r}" '
        f'data-log="{int(y.log)}" data-unit="{metric.unit}">',
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(_summary(buckets, metric))}">',
        *_drawing(buckets, metric, x, y),
        "</svg>",
    ]
    for tick, label in zip(y.ticks, y.labels, strict=True):
        lines.append(f'<i class="y" style="bottom:{100 * y.place(tick):.2f}%">{escape(label)}</i>')
    for tick, label in zip(x.ticks, x.labels, strict=True):
        lines.append(f'<i class="x" style="left:{100 * x.place(tick):.2f}%">{escape(label)}</i>')
    return "\n".join([*lines, '<i class="x axis">step</i>', "</div>", "</figure>"])


def _scaled(bucket: Bucket, factor: float) -> Bucket:
    extremes = tuple((step, value * factor) for step, value in bucket.extremes)
    return replace(bucket, extremes=extremes, value_total=bucket.value_total * factor)


def _value_axis(buckets: Sequence[Bucket], unit: str) -> Axis:
    values = [value for bucket in buckets for _, value in bucket.extremes]
    if not values:
        return linear_axis(0.0, 1.0, unit)
    low, high = min(values), max(values)
    # A few spikes would press everything else flat against the axis.
    if low > 0 and high > 30 * float(np.median([bucket.mean[1] for bucket in buckets if bucket.count])):
        return log_axis(low, high, unit)
    room = 0.05 * (high - low)
    return linear_axis(0.0 if 0 <= low < 0.3 * high else low - room, high + room, unit)


def _drawing(buckets: Sequence[Bucket], metric: Metric, x: Axis, y: Axis) -> list[str]:
    segments = _segments(buckets)
    raw = [[point for bucket in segment for point in bucket.extremes] for segment in segments]
    count = sum(bucket.count for bucket in buckets)
    smoothed = metric.noisy and count >= MANY_POINTS
    strong = [_smoothed(segment, x, y) for segment in segments] if smoothed else [_placed(line, x, y) for line in raw]
    dots = [point for line in strong for point in line][0 if count <= FEW_POINTS else -1 :]

    paths = {"grid": "".join(f"M0,{_down(y.place(tick))}h{WIDTH}" for tick in y.ticks)}
    if smoothed:
        paths["raw"] = _path(_placed(line, x, y) for line in raw)
    paths["line"] = _path(strong)
    paths["dots"] = _path([dot] for dot in dots)
    paths["gap"] = "".join(f"M{_across(x.place(b.gap_step))},{HEIGHT}v-24" for b in buckets if b.gaps)
    return [f'<path class="{name}" d="{path}"/>' for name, path in paths.items() if path]


def _segments(buckets: Sequence[Bucket]) -> list[list[Bucket]]:
    """Runs of buckets between values that were not finite: the line is broken there, never drawn across."""
    segments: list[list[Bucket]] = [[]]
    for bucket in buckets:
        if bucket.count:
            segments[-1].append(bucket)
        if bucket.gaps:
            segments.append([])
    return [segment for segment in segments if segment]


def _placed(line: Sequence[Point], x: Axis, y: Axis) -> list[Point]:
    return [(x.place(step), y.place(value)) for step, value in line]


def _smoothed(segment: Sequence[Bucket], x: Axis, y: Axis) -> list[Point]:
    """The smoothed line, fitted to the means as they lie on the axes, so that a logarithm is taken first."""
    across, up = np.array(_placed([bucket.mean for bucket in segment], x, y)).T
    weight = np.array([bucket.count for bucket in segment], dtype=np.float64)
    return list(zip(across.tolist(), smooth(across, up, weight, SMOOTHING).tolist(), strict=True))


def _path(lines: Iterable[Sequence[Point]]) -> str:
    # A lone point is drawn as a line of no length, which the round cap turns into a dot.
    corners = (" ".join(f"{_across(a)},{_down(b)}" for a, b in line) + "h0" * (len(line) == 1) for line in lines)
    return "".join("M" + line for line in corners)


def _across(place: float) -> str:
    return f"{WIDTH * place:.1f}".removesuffix(".0")


def _down(place: float) -> str:
    return f"{HEIGHT * (1 - place):.1f}".removesuffix(".0")


def _notes(metric: Metric, y: Axis, buckets: Sequence[Bucket]) -> str:
    lost = sum(bucket.gaps for bucket in buckets)
    notes = [escape(metric.meaning)]
    if y.log:
        notes.append("Logarithmic scale.")
    if lost:
        notes.append(f"<em>{lost} not finite (red marks).</em>")
    return " ".join(note for note in notes if note)


def _summary(buckets: Sequence[Bucket], metric: Metric) -> str:
    """The chart in words, for those who cannot see it."""
    points = [point for bucket in buckets for point in bucket.extremes]
    if not points:
        return f"{metric.title}: no finite value"
    by_value = operator.itemgetter(1)
    extremes = (min(points, key=by_value), max(points, key=by_value))
    lowest, highest = (
        f"{format_number(value, metric.digits, metric.unit)} at step {format_number(step)}"
        for step, value in extremes
    )
    return f"{metric.title}: lowest {lowest}, highest {highest}"
