"""Figures of the studies in the paper's form, with its numbers beside ours where it gives them."""

import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from flexpredict.files import write_atomically
from flexpredict.studies.ablations.studies import Study
from flexpredict.studies.ablations.summary import Estimate, Row
from flexpredict.studies.analyses.output import COLOURS

_OURS, _OTHER, _PAPER = COLOURS[0], COLOURS[1], "#999999"


def draw(study: Study, rows: list[Row], seeds: int, path: Path) -> None:
    """Write a PNG."""
    figure = {"points": _points, "curves": _curves, "norms": _norms}[study.form](study, rows)
    said = f"means of {seeds} seeds, 95 % intervals" if seeds > 1 else "one seed"
    figure.suptitle(f"{study.title} ({said})", fontsize=11)
    figure.tight_layout()
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=150, format="png"))
    pyplot.close(figure)


def _points(study: Study, rows: list[Row]) -> Any:
    """For each share of labels the accuracy of each arm, seeds apart, and beside it the paper's on its own scale.

    Points and not bars: differences of a point or two are not seen on a scale that begins at zero.
    """
    names = list(rows[0].numbers)
    papers = [row.arm.paper for row in rows]
    panels = len(names) + any(paper is not None for paper in papers)
    figure, axes = pyplot.subplots(1, panels, figsize=(max(3.3, 0.8 * len(rows)) * panels + 0.6, 3.6), squeeze=False)
    labels = [textwrap.fill(row.arm.name, 10, break_long_words=False) for row in rows]
    places = list(range(len(rows)))
    for axis, name in zip(axes[0], names, strict=False):
        estimates = [row.numbers[name] for row in rows]
        for place, estimate in zip(places, estimates, strict=True):
            axis.plot([place + 0.18] * len(estimate.values), estimate.values, ".", color=_OTHER, alpha=0.7)
        means = [estimate.mean for estimate in estimates]
        axis.errorbar(places, means, _errors(estimates), fmt="o", capsize=5, color=_OURS)
        axis.axhline(means[0], color=_PAPER, linestyle=":", linewidth=1)
        axis.set_title(f"ours: {name}", fontsize=9)
    if panels > len(names):
        shown = [(place, paper) for place, paper in zip(places, papers, strict=True) if paper is not None]
        axes[0][-1].plot([place for place, _ in shown], [paper for _, paper in shown], "s", color=_PAPER)
        axes[0][-1].axhline(shown[0][1], color=_PAPER, linestyle=":", linewidth=1)
        axes[0][-1].set_title("paper: ImageNet, ViT-B, linear 1 %", fontsize=9)
    for axis in axes[0]:
        axis.set_xticks(places, labels, fontsize=8)
        axis.set_xlim(-0.5, len(rows) - 0.5)
        axis.set_ylabel("accuracy (%)")
    return figure


def _curves(study: Study, rows: list[Row]) -> Any:
    """Accuracy over the noise level, a curve for each series; the baseline belongs to all."""
    names = list(rows[0].numbers)
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.2 * len(names), 3.4), squeeze=False)
    series = list(dict.fromkeys(row.arm.series for row in rows if row.arm.series))
    for axis, name in zip(axes[0], names, strict=True):
        for curve, colour in zip(series, (_OURS, _OTHER), strict=False):
            points = [row for row in rows if row.arm.series in ("", curve)]
            estimates = [row.numbers[name] for row in points]
            levels = [row.arm.level for row in points]
            means = [estimate.mean for estimate in estimates]
            axis.errorbar(
                levels,
                means,
                yerr=_errors(estimates),
                marker="o",
                capsize=4,
                color=colour,
                label=f"{curve} covariance",
            )
        axis.axhline(rows[0].numbers[name].mean, color=_PAPER, linestyle=":", label="no noise")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("noise level (noise_std of a ViT-B)")
        axis.set_ylabel("accuracy (%)")
        axis.legend(fontsize=8)
    return figure


def _norms(study: Study, rows: list[Row]) -> Any:
    names = list(rows[0].numbers)
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.2 * len(names), 3.4), squeeze=False)
    for axis, name, colour in zip(axes[0], names, (_OURS, _OTHER), strict=False):
        estimates = [row.numbers[name] for row in rows]
        levels = [row.arm.level for row in rows]
        means = [estimate.mean for estimate in estimates]
        axis.errorbar(levels, means, yerr=_errors(estimates), marker="o", capsize=4, color=colour)
        axis.set_xlabel("noise level (noise_std of a ViT-B)")
        axis.set_ylabel(f"{name} at the end of training")
    return figure


def _errors(estimates: list[Estimate]) -> list[float] | None:
    halves = [estimate.half for estimate in estimates if estimate.half is not None]
    return halves if len(halves) == len(estimates) else None
