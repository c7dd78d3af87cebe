"""Proposition 1 in numbers: given a noisy position, the best prediction is a blur of the clean one.

In one dimension: a target Y with E[Y | X = x] = f(x), at a position X that is only known as R = X + Z, Z ~ N(0, s²).
The predictor of least squared error is E[Y | R = r] = ∫ f(x) p(x | r) dx, with p(x | r) ∝ p(x) exp(-(x - r)² / 2s²).
If all positions are equally likely, p(x) is constant and this is f convolved with a Gaussian, as the proposition
says. It does not name that condition: with a prior that is not flat, the Gaussian blur is not the best predictor.
Both cases are shown, and in both a regression on samples (R, Y), without knowledge of f, s and the prior, finds the
closed form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from flexpredict.evaluation.results import mean_and_interval
from flexpredict.files import write_csv_atomically
from flexpredict.randomness import normal, stream_key, uniform
from flexpredict.studies.analyses.output import Analysis, places_for
from flexpredict.studies.figures import COLORS, GRAY, drawing

Function = Callable[[Tensor], Tensor]

NOISE = 0.4  # s
TARGET_NOISE = 0.1  # standard deviation of Y about f(X)
SAMPLES = tuple(2**power for power in range(7, 16))
REPEATS = 5
_FEATURES, _LENGTH, _RIDGE = 96, 0.5, 0.1
_QUADRATURE = torch.linspace(-8.0, 8.0, 4001, dtype=torch.float64)


@dataclass(frozen=True)
class Prior:
    """The distribution of X: its density, and how to draw from it."""

    name: str
    density: Function  # up to a constant factor
    draw: Callable[[int, int], Tensor]  # key, count


UNIFORM = Prior(
    "uniform prior",
    lambda x: (x.abs() <= 3.0).double(),
    lambda key, count: 6.0 * uniform(torch.tensor(key), count).double() - 3.0,
)
GAUSSIAN = Prior(
    "Gaussian prior",
    lambda x: torch.exp(-0.5 * x.square()),
    lambda key, count: normal(torch.tensor(key), count).double(),
)


def clean(x: Tensor) -> Tensor:
    """The function f: edges, and a ripple finer than the noise."""
    return torch.tanh(8 * torch.sin(1.5 * x)) + 0.4 * torch.sin(7 * x)


def best_predictor(function: Function, density: Function, noise: float, at: Tensor) -> Tensor:
    """E[f(X) | R = r] by quadrature, for each r in `at`."""
    weights = torch.exp(-0.5 * ((_QUADRATURE - at[:, None]) / noise).square()) * density(_QUADRATURE)
    return weights @ function(_QUADRATURE) / weights.sum(dim=1)


def gaussian_blur(function: Function, noise: float, at: Tensor) -> Tensor:
    """f convolved with N(0, noise²): the best predictor if all positions are equally likely."""
    return best_predictor(function, torch.ones_like, noise, at)


def learned_predictor(prior: Prior, samples: int, seed: int) -> Function:
    """Ridge regression on random Fourier features of R, from samples of (R, Y), solved exactly."""

    def key(what: str) -> Tensor:
        return torch.tensor(stream_key(seed, f"proposition 1: {what}", samples))

    places = prior.draw(int(key("places")), samples)
    seen = places + NOISE * normal(key("noise"), samples).double()
    targets = clean(places) + TARGET_NOISE * normal(key("targets"), samples).double()
    frequencies = normal(key("frequencies"), _FEATURES).double() / _LENGTH
    phases = 2 * math.pi * uniform(key("phases"), _FEATURES).double()

    def features(r: Tensor) -> Tensor:
        return torch.cos(r[:, None] * frequencies + phases)

    design = features(seen)
    moments = design.T @ design + _RIDGE * torch.eye(_FEATURES, dtype=torch.float64)
    weights = torch.linalg.solve(moments, design.T @ targets)
    return lambda r: features(r) @ weights


def error(prior: Prior, predictor: Function) -> float:
    """Root-mean-square distance to the best predictor, over the distribution of R."""
    r = _QUADRATURE[::20]
    seen = torch.exp(-0.5 * ((r[:, None] - _QUADRATURE) / NOISE).square()) @ prior.density(_QUADRATURE)
    distance = predictor(r) - best_predictor(clean, prior.density, NOISE, r)
    # Far outside the prior, both weights and densities vanish.
    squares = torch.where(seen > 1e-9 * seen.max(), distance, 0.0).square()
    return float((seen @ squares / seen.sum()).sqrt())


@dataclass(frozen=True)
class Course:
    """Errors for one prior: of the learned predictor by sample count (mean, half interval), and of two others."""

    prior: Prior
    learned: list[tuple[float, float | None]]
    blur: float
    clean: float


def course(prior: Prior, samples: Sequence[int], repeats: int = REPEATS, seed: int = 0) -> Course:
    errors = [
        mean_and_interval(
            [error(prior, learned_predictor(prior, count, seed * repeats + repeat)) for repeat in range(repeats)]
        )
        for count in samples
    ]
    return Course(prior, errors, error(prior, lambda r: gaussian_blur(clean, NOISE, r)), error(prior, clean))


def draw_proposition1(out: Path, *, seed: int = 0) -> Analysis:
    """Write proposition1.png and proposition1.csv."""
    picture, data = places_for(out, "proposition1", "csv")
    courses = [course(prior, SAMPLES, seed=seed) for prior in (UNIFORM, GAUSSIAN)]
    write_csv_atomically(
        data,
        [
            {
                "prior": one.prior.name,
                "samples": count,
                "error_of_learned": mean,
                "half_interval": half_width,
                "error_of_gaussian_blur": one.blur,
                "error_of_clean": one.clean,
            }
            for one in courses
            for count, (mean, half_width) in zip(SAMPLES, one.learned, strict=True)
        ],
    )
    _draw(picture, courses, seed)
    table = [
        {
            "prior of the position": one.prior.name,
            f"learned, {SAMPLES[0]:,} samples": f"{one.learned[0][0]:.3f}",
            f"learned, {SAMPLES[-1]:,} samples": f"{one.learned[-1][0]:.4f}",
            "Gaussian blur": f"{one.blur:.3f}",
            "clean f": f"{one.clean:.3f}",
        }
        for one in courses
    ]
    lines = (
        "Root-mean-square distance to the best predictor E[Y | R]: regression on samples converges to it.",
        "The Gaussian blur of the proposition is that predictor only if positions are equally likely: inside the "
        "uniform prior, not at its edges, and not for a Gaussian prior.",
    )
    return Analysis(picture, data, lines, tuple(table))


def _draw(path: Path, courses: Sequence[Course], seed: int) -> None:
    r = torch.linspace(-3.6, 3.6, 721, dtype=torch.float64)
    x = r.numpy()
    with drawing(path, 12.6, 4.3) as figure:
        *axes, errors = figure.subplots(1, 3)
        for axis, one, color in zip(axes, courses, COLORS, strict=False):
            best = best_predictor(clean, one.prior.density, NOISE, r).numpy()
            blurred, learned = gaussian_blur(clean, NOISE, r), learned_predictor(one.prior, SAMPLES[-1], seed)(r)
            axis.plot(x, clean(r).numpy(), color=GRAY, linewidth=0.9, label="clean f(r)")
            axis.plot(x, best, color="black", linewidth=3.2, label="best predictor E[Y | R = r]")
            axis.plot(x, blurred.numpy(), "--", color=COLORS[1], label="Gaussian blur of f")
            label = f"learned from {SAMPLES[-1]:,} samples"
            axis.plot(x, learned.numpy(), ":", color=COLORS[5], linewidth=2.2, label=label)
            title = f"{one.prior.name}, noise s = {NOISE}"
            axis.set(xlabel="noisy position r (units of x)", ylim=(-2.0, 2.9), title=title)
            means, halves = zip(*one.learned, strict=True)
            bars, label = [half or 0.0 for half in halves], f"learned, {one.prior.name}"
            errors.errorbar(SAMPLES, means, yerr=bars, fmt="o-", color=color, capsize=3, label=label)
            errors.axhline(one.blur, color=color, linestyle="--", label=f"Gaussian blur, {one.prior.name}")
        axes[0].set_ylabel("prediction of Y")
        axes[0].legend(loc="upper left", ncols=2, fontsize=8, handlelength=1.4, columnspacing=0.9)
        errors.set(xscale="log", yscale="log", xlabel="number of samples (R, Y)")
        errors.set(ylabel="RMS distance to the best predictor", title=f"Error (95 % intervals, {REPEATS} repeats)")
        errors.legend(fontsize=8)
