"""Which positional frequencies the learned covariance hides, and how far the noise moves a token.

The paper guesses that high frequencies may get more variance than low ones. The figure shows the measured variance of
A n in each frequency of ψ, by itself and relative to the variance of ψ in this frequency on this grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.files import write_json_atomically
from flexpredict.model.positions import noise_to_signal
from flexpredict.randomness import stream_key
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.studies.analyses.covariance import (
    Bands,
    Spectrum,
    as_values,
    frequency_bands,
    moving_levels,
    spectrum,
)
from flexpredict.studies.analyses.opening import OpenedModel
from flexpredict.studies.analyses.output import Analysis, places_for
from flexpredict.studies.figures import COLORS, GRAY, drawing, plain_ticks

# Runs without noise have an A as well. It is shown at the level that the paper's ViT-B starts with.
_RATIO_WITHOUT_NOISE = 0.2
_FEW = 0.01  # blur starts at the level that misplaces this share of tokens


@dataclass(frozen=True, eq=False)
class NoiseOfRun:
    """The effect of the noise of one run; `new_`: before training."""

    opened: OpenedModel
    noise_std: float  # of the run, or the level it is shown at if it has no noise
    bands: Bands
    new_bands: Bands
    spectrum: Spectrum
    new_spectrum: Spectrum
    levels: Tensor  # for many draws, the noise_std at which each is mistaken for another position, ascending
    log: list[tuple[float, float]]  # step, and location blur in patches

    @property
    def start(self) -> float:
        """The noise_std at which one token in a hundred is mistaken for another position."""
        return float(self.levels[int(_FEW * len(self.levels))])

    @property
    def misplaced(self) -> float:
        """The share of tokens that are mistaken for another position."""
        return float((self.levels < self.noise_std).double().mean())


def noise_of(opened: OpenedModel, noise_std: float | None = None, seed: int = 0) -> NoiseOfRun:
    """Compute the effect of a run's noise. noise_std: a level other than the run's own."""
    matrix, positions, grid = opened.matrix, opened.positions, opened.tokens.grid
    level = opened.level(noise_std) or _RATIO_WITHOUT_NOISE / noise_to_signal(matrix, positions, 1.0)
    new = opened.new_matrix
    records = read_records(RunFolder(Path(opened.name).expanduser()).metrics)
    return NoiseOfRun(
        opened,
        level,
        frequency_bands(matrix, positions, grid, level),
        frequency_bands(new, positions, grid, level),
        spectrum(matrix, level),
        spectrum(new, level),
        moving_levels(matrix, positions, stream_key(seed, "noise of the blur figure")),
        [(record["step"], record["location_blur"]) for record in records if "location_blur" in record],
    )


def draw_blur(models: Sequence[OpenedModel], out: Path, *, noise_std: float | None = None, seed: int = 0) -> Analysis:
    """Write blur.png and blur.json, with a few runs in one figure."""
    if not 1 <= len(models) <= len(COLORS):
        raise UserError(f"The blur figure shows 1 to {len(COLORS)} runs, not {len(models)}.")
    runs = [noise_of(opened, noise_std, seed) for opened in models]
    picture, data = places_for(out, "blur", "json")
    write_json_atomically(data, {run.opened.name: _values(run) for run in runs})
    _draw(picture, runs)
    lines = [line for run in runs for line in _in_words(run)]
    table = [
        {
            "run": run.opened.label,
            "noise_std": f"{run.noise_std:.3g}" + ("" if run.opened.noise_std else " (has none)"),
            "‖A n‖ / ‖ψ‖": f"{noise_to_signal(run.opened.matrix, run.opened.positions, run.noise_std):.2f}",
            "high / low": f"{run.bands.high_to_low:.2f} (new {run.new_bands.high_to_low:.2f})",
            "rank": f"{run.spectrum.effective_rank:.1f} (new {run.new_spectrum.effective_rank:.1f})",
            "misplaced": f"{100 * run.misplaced:.1f} %",
            "1 % from": f"{run.start:.3g}",
        }
        for run in runs
    ]
    return Analysis(picture, data, tuple(lines), tuple(table))


def _in_words(run: NoiseOfRun) -> list[str]:
    ratio, label = run.bands.high_to_low, run.opened.label
    chance = 2 * run.spectrum.ratio_by_chance
    if abs(ratio - 1) <= chance:
        verdict = f"which is no more than chance (± {chance:.2f}): no sign of what the paper guesses"
    else:
        verdict = f"beyond chance (± {chance:.2f}), " + ("as" if ratio > 1 else "against what") + " the paper guesses"
    lines = [
        f"{label}: the higher half of the frequencies of ψ has {ratio:.2f} times the noise of the lower half "
        f"({run.new_bands.high_to_low:.2f} before training), {verdict}."
    ]
    if run.opened.noise_std and run.log and not any(blur for _, blur in run.log):
        rows, columns = run.opened.tokens.grid
        lines.append(
            f"{label}: the location blur in the log is zero throughout, as on a grid of {rows}x{columns} patches the "
            f"true position stays nearest at this level. One token in a hundred is mistaken for another from "
            f"noise_std {run.start:.3g} on, {run.start / run.noise_std:.1f} times the level of {run.noise_std:.3g}."
        )
    return lines


def _values(run: NoiseOfRun) -> dict[str, Any]:
    return {
        "noise_std": run.noise_std,
        "noise_std_of_run": run.opened.noise_std,
        "step": run.opened.step,
        "trained": as_values(run.bands, run.spectrum),
        "new": as_values(run.new_bands, run.new_spectrum),
        "misplaced": run.misplaced,
        "noise_std_where_1_percent_are_misplaced": run.start,
        "location_blur": [{"step": step, "patches": blur} for step, blur in run.log],
    }


def _draw(path: Path, runs: Sequence[NoiseOfRun]) -> None:
    with drawing(path, 12.4, 7.0) as figure:
        ((shape, relative, eigenvalues), (log, moved, key)) = figure.subplots(2, 3)
        _draw_bands(shape, relative, runs)
        _draw_spectrum(eigenvalues, runs)
        _draw_log(log, runs)
        _draw_moved(moved, runs)
        lines = [line for axis in (shape, moved) for line in axis.get_legend_handles_labels()[0]]
        key.legend(handles=lines, loc="center left", fontsize=10)
        key.set_axis_off()
        for scaled in (shape.xaxis, relative.xaxis, relative.yaxis, eigenvalues.yaxis, moved.xaxis):
            plain_ticks(scaled)


def _draw_bands(shape: Any, relative: Any, runs: Sequence[NoiseOfRun]) -> None:
    for run, color in zip(runs, COLORS, strict=False):
        for part, (name, dashes) in enumerate((("columns", "--"), ("rows", "-"))):
            waves, label = run.bands.wavelengths.numpy(), f"{run.opened.label}, {name}"
            shape.plot(waves, run.bands.shape[part].numpy(), dashes, color=color, label=label)
            relative.plot(waves, run.bands.relative[part].numpy(), dashes, color=color)
    new, waves = runs[0].new_bands.shape.mean(dim=0).numpy(), runs[0].new_bands.wavelengths.numpy()
    shape.plot(waves, new, color=GRAY, linewidth=1.0, label="A before training")
    shape.axhline(1.0, color="black", linewidth=1.0, linestyle=":", label="identity of the same trace (flat)")
    flat = runs[0].bands.noise.mean() / runs[0].bands.signal.mean(dim=0)
    relative.plot(waves, flat.numpy(), ":", color="black", linewidth=1.0)
    relative.axhline(1.0, color=GRAY, linewidth=0.8)
    extent = max(runs[0].opened.tokens.grid)
    for axis in (shape, relative):
        axis.axvspan(2 * extent, waves[-1], color=GRAY, alpha=0.12, linewidth=0)
        axis.set(xscale="log", xlabel="wavelength of the frequency (patches)")
    title = "Noise in each frequency of ψ\n(shaded: waves longer than two grids)"
    shape.set(ylim=(0.0, None), ylabel="variance of A n / its mean", title=title)
    title = "Noise over signal in each frequency\n(above 1 the frequency is drowned)"
    relative.set(yscale="log", ylabel="variance of A n / variance of ψ", title=title)


def _draw_spectrum(axis: Any, runs: Sequence[NoiseOfRun]) -> None:
    lines = [(run.spectrum, run.opened.label, color, 1.8) for run, color in zip(runs, COLORS, strict=False)]
    for found, label, color, width in (*lines, (runs[0].new_spectrum, "before training", GRAY, 1.0)):
        share = (found.eigenvalues / found.eigenvalues.sum()).numpy()
        named = f"{label}: rank {found.effective_rank:.1f}"
        axis.plot(range(1, len(share) + 1), share, label=named, color=color, linewidth=width)
    dim = len(runs[0].spectrum.eigenvalues)
    axis.axhline(1 / dim, color="black", linestyle=":", linewidth=1.0, label=f"identity: rank {dim}")
    axis.set(yscale="log", xlabel="number of the eigenvalue", ylabel="share of the variance")
    axis.set_title("Spectrum of A Aᵀ, and its effective rank")
    axis.legend(fontsize=8)


def _draw_log(axis: Any, runs: Sequence[NoiseOfRun]) -> None:
    noisy = [(run, color) for run, color in zip(runs, COLORS, strict=False) if run.log and run.opened.noise_std]
    for run, color in noisy:
        axis.plot(*zip(*run.log, strict=True), color=color)
    note = "" if noisy else "no log of a run with noise"
    if noisy and not any(blur for run in runs for _, blur in run.log):
        axis.set_ylim(-0.05, 1.0)
        note = "zero throughout: on so small a grid\nthe true position stays nearest"
    axis.text(0.5, 0.5, note, ha="center", transform=axis.transAxes)
    axis.set(xlabel="step", ylabel="mean distance (patches)", title="Location blur over training")


def _draw_moved(axis: Any, runs: Sequence[NoiseOfRun]) -> None:
    for run, color in zip(runs, COLORS, strict=False):
        share = 100 * torch.arange(1, len(run.levels) + 1) / len(run.levels)
        axis.plot(run.levels.numpy(), share.numpy(), color=color)
        label = "noise_std" if run.opened.noise_std else "no noise, shown at"
        label = f"{run.opened.label}: {label} {run.noise_std:.2g}"
        axis.axvline(run.noise_std, color=color, linestyle="-.", linewidth=1.2, label=label)
    first = min(min(float(run.levels[0]), run.noise_std) for run in runs) / 2
    # The last few draws point away from the grid and are never mistaken for another position.
    last = max(float(run.levels[len(run.levels) * 9 // 10]) for run in runs)
    axis.set(xscale="log", xlim=(first, last), ylim=(0, 100), xlabel="noise_std")
    axis.set(ylabel="tokens mistaken for another (%)", title="Level at which the position is lost")
