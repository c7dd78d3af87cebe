"""Proposition 1: the best predictor from a noisy place against closed forms, and what samples teach of it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from flexpredict.studies.analyses import proposition1
from flexpredict.studies.analyses.proposition1 import (
    GAUSSIAN,
    NOISE,
    UNIFORM,
    best_predictor,
    clean,
    course,
    error,
    gaussian_blur,
    learned_predictor,
)


def test_the_best_predictor_from_a_gaussian_place_is_known() -> None:
    """X ~ N(0, 1), so X | R = r ~ N(r / (1 + s²), s² / (1 + s²)), and the mean of a sine over a Gaussian is known."""
    r = torch.linspace(-3, 3, 61, dtype=torch.float64)
    wave, variance = 2.5, NOISE**2 / (1 + NOISE**2)
    expected = math.exp(-(wave**2) * variance / 2) * torch.sin(wave * r / (1 + NOISE**2))
    found = best_predictor(lambda x: torch.sin(wave * x), GAUSSIAN.density, NOISE, r)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_where_all_places_are_equally_likely_it_is_the_gaussian_blur() -> None:
    r = torch.linspace(-1.0, 1.0, 41, dtype=torch.float64)  # five noise levels inside the edges
    found = best_predictor(clean, UNIFORM.density, NOISE, r)
    torch.testing.assert_close(found, gaussian_blur(clean, NOISE, r), rtol=0, atol=1e-4)
    blurred = gaussian_blur(lambda x: torch.sin(2 * x), NOISE, r)
    torch.testing.assert_close(blurred, math.exp(-2 * NOISE**2) * torch.sin(2 * r), rtol=0, atol=1e-9)


@pytest.mark.parametrize("prior", [UNIFORM, GAUSSIAN], ids=["uniform", "gaussian"])
def test_what_is_learned_from_samples_comes_nearer_to_the_best_predictor_with_their_number(prior: Any) -> None:
    found = course(prior, samples=(256, 2048, 16_384), repeats=3)
    errors = [mean for mean, _ in found.learned]
    assert errors[0] > 1.8 * errors[1] > 1.8**2 * errors[2]
    assert errors[2] < 0.05 < found.clean
    if prior is GAUSSIAN:
        assert errors[2] < 0.3 * found.blur  # the blur of the proposition is not the best one here


def test_no_predictor_has_a_smaller_error_than_the_best_one() -> None:
    assert error(UNIFORM, lambda r: best_predictor(clean, UNIFORM.density, NOISE, r)) == 0.0
    assert error(UNIFORM, learned_predictor(UNIFORM, 4096, 1)) > 0.0


def test_the_figure_of_the_proposition_comes_with_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposition1, "SAMPLES", (128, 1024))
    made = proposition1.draw_proposition1(tmp_path)
    header, *rows = made.data.read_text().splitlines()
    assert header.startswith("prior,samples,error_of_learned") and len(rows) == 4
    assert Image.open(made.picture).size[0] > 1000
