"""Figures in one style; a study's figure has a panel for each quantity, and the paper's numbers beside ours."""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from flexpredict.files import write_atomically
from flexpredict.studies.ablations.measuring import LOCATION, NORMS
from flexpredict.studies.ablations.study import Study
from flexpredict.studies.ablations.summary import Estimate, Row, digits_of

# Okabe and Ito's colors, which color-blind readers can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GRAY = "#777777"
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "lines.linewidth": 1.8,
    "image.interpolation": "nearest",
}

_OURS, _OTHER = COLORS[0], COLORS[1]
_PANELS_A_ROW = 4
_ACCURACY = "accuracy (%)"
_LEVEL = "noise level ‖A n‖ / ‖ψ‖"
_UNITS = {
    "location share": "of the variance (%)",
    "place R²": "R²",
    **{name: "accuracy lost (points)" for name in LOCATION.values() if name.startswith("lost")},
    **dict.fromkeys(NORMS.values(), "at the end of training"),
}

Panel = Callable[[Axes], None]


@contextmanager
def drawing(path: Path, width: float, height: float, dpi: int = 100) -> Iterator[Figure]:
    """Yields a figure of width x height inches and writes it to `path` at the end."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure

        def write(temporary: Path) -> None:
            # No library version in the metadata: equal figures give equal files.
            figure.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})

        write_atomically(path, write)


def plain_ticks(scaled: Any) -> None:
    """Puts a few plain numbers on a logarithmic axis, where matplotlib's powers of ten would overlap."""
    low, high = scaled.get_view_interval()
    decades = math.log10(high / low)
    steps = (1.0,) if decades > 2 else (1.0, 3.0) if decades > 1 else (1.0, 2.0, 5.0)
    scaled.set_major_locator(LogLocator(subs=steps, numticks=8))
    scaled.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scaled.set_minor_formatter(NullFormatter())


def draw(study: Study, rows: list[Row], seeds: int, path: Path) -> None:
    """Draws the figure of a study as a PNG."""
    make = {"points": _points, "curves": _curve, "norms": _curve, "surface": _surface}[study.form]
    panels: list[Panel] = [partial(make, study=study, rows=rows, name=name) for name in rows[0].numbers]
    if study.form == "points" and any(row.arm.paper is not None for row in rows):
        panels.append(partial(_paper, rows=rows))
    columns = min(_PANELS_A_ROW, len(panels))
    lines = math.ceil(len(panels) / columns)
    width = max(3.6, 0.55 * len(rows)) if study.form == "points" else 4.0
    means = f"means of {seeds} seeds, 95 % intervals" if seeds > 1 else "one seed"
    with drawing(path, width * columns, (4.2 if study.form == "points" else 3.5) * lines + 0.5, dpi=110) as figure:
        for place, panel in enumerate(panels):
            panel(figure.add_subplot(lines, columns, place + 1))
        figure.suptitle(f"{study.title} ({means})", fontsize=12)


def _points(axes: Axes, study: Study, rows: list[Row], name: str) -> None:
    """Mean and seeds of each arm, as points: on bars from zero, differences of a point or two would be invisible."""
    for place, row in enumerate(rows):
        values = row.numbers[name].values
        axes.plot([place + 0.2] * len(values), values, ".", color=_OTHER, alpha=0.7)
    _error_bars(axes, range(len(rows)), [row.numbers[name] for row in rows], fmt="o", color=_OURS)
    axes.axhline(rows[0].numbers[name].mean, color=GRAY, linestyle=":", linewidth=1)
    axes.set(title=name, ylabel=_UNITS.get(name, _ACCURACY))
    _name_arms(axes, rows)


def _paper(axes: Axes, rows: list[Row]) -> None:
    shown = [(place, row.arm.paper) for place, row in enumerate(rows) if row.arm.paper is not None]
    axes.plot(*zip(*shown, strict=True), "s", color=GRAY)
    axes.axhline(shown[0][1], color=GRAY, linestyle=":", linewidth=1)
    axes.set(title="paper: ImageNet, ViT-B, linear 1 %", ylabel=_ACCURACY)
    _name_arms(axes, rows)


def _name_arms(axes: Axes, rows: list[Row]) -> None:
    labels = [textwrap.fill(row.arm.name, 14, break_long_words=False) for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=8, rotation=90 if len(rows) > 4 else 0)
    axes.set_xlim(-0.5, len(rows) - 0.5)


def _curve(axes: Axes, study: Study, rows: list[Row], name: str) -> None:
    """A curve over the level for each series; an arm without a series belongs to all of them."""
    series = list(dict.fromkeys(row.arm.series for row in rows if row.arm.series)) or [""]
    for curve, color in zip(series, COLORS, strict=False):
        points = [row for row in rows if row.arm.series in ("", curve)]
        levels = [row.arm.level or 0.0 for row in points]
        estimates = [row.numbers[name] for row in points]
        _error_bars(axes, levels, estimates, marker="o", color=color, label=curve or None)
    axes.axhline(rows[0].numbers[name].mean, color=GRAY, linestyle=":", label=rows[0].arm.name)
    axes.set(title=name, xlabel=_LEVEL, ylabel=_UNITS.get(name, _ACCURACY))
    axes.legend(fontsize=8)


def _surface(axes: Axes, study: Study, rows: list[Row], name: str) -> None:
    """Differences to the baseline by series (y) and level (x); bold if the interval excludes zero."""
    compared = [row for row in rows if name in row.differences]
    series = list(dict.fromkeys(row.arm.series for row in compared))
    levels = sorted({row.arm.level for row in compared if row.arm.level is not None})
    values = np.full((len(series), len(levels)), np.nan)
    for row in compared:
        assert row.arm.level is not None
        up, right = series.index(row.arm.series), levels.index(row.arm.level)
        difference = row.differences[name]
        values[up, right] = difference.mean
        words = difference.in_words("+", digits_of(name)).replace(" ±", "\n±")
        weight = "bold" if difference.sign else "normal"
        axes.text(right, up, words, ha="center", va="center", fontsize=8, fontweight=weight)
    most = 1.6 * float(np.nanmax(np.abs(values))) or 1.0  # the darkest colors would hide the numbers
    image = axes.imshow(values, cmap="RdBu", vmin=-most, vmax=most, origin="lower", aspect="auto")
    axes.figure.colorbar(image, ax=axes)
    axes.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    axes.set_yticks(range(len(series)), series)
    axes.set(xlabel=_LEVEL, title=f"{name}: difference to sin-cos")


def _error_bars(axes: Axes, places: Sequence[float], estimates: Sequence[Estimate], **style: Any) -> None:
    """Means, with 95 % intervals if there are several seeds."""
    halves = [estimate.half for estimate in estimates if estimate.half is not None] or None
    axes.errorbar(places, [estimate.mean for estimate in estimates], halves, capsize=4, **style)
