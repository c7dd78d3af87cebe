"""Figures of positions and of their blur: numbers against closed forms, and against independent computations."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import gamma, hyp1f1
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.model.positions import location_blur, sincos_positions
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.studies.analyses.blur import draw_blur, noise_of
from flexpredict.studies.analyses.covariance import frequency_bands, moving_levels, spectrum
from flexpredict.studies.analyses.opening import OpenedModel, open_model
from flexpredict.studies.analyses.positions import draw_positions, similarities

GRID = (5, 7)
DIM = 32


def matrix(columns: int = 24, key: int = 5) -> Tensor:
    return normal(sample_keys(key, torch.arange(DIM)), columns)


# Positions


def test_the_deterministic_map_is_a_mean_of_cosines_of_distances() -> None:
    queries = torch.tensor([0, 17, 34])
    found = similarities(sincos_positions(GRID, DIM), matrix(), 0.3, queries, draws=1)
    frequencies = 10_000.0 ** (-np.arange(DIM // 4) / (DIM // 4))
    for query, row in zip(queries.tolist(), found.deterministic, strict=True):
        for other in range(GRID[0] * GRID[1]):
            down, right = other // GRID[1] - query // GRID[1], other % GRID[1] - query % GRID[1]
            # sin a sin b + cos a cos b = cos(a - b), and each ψ has length √(d_p / 2).
            expected = (np.cos(frequencies * down) + np.cos(frequencies * right)).sum() / (DIM / 2)
            assert float(row[other]) == pytest.approx(expected, abs=1e-5)


def test_without_noise_all_three_maps_are_equal() -> None:
    found = similarities(sincos_positions(GRID, DIM), matrix(), 0.0, torch.tensor([3, 30]), draws=300)
    torch.testing.assert_close(found.one_draw, found.deterministic)
    torch.testing.assert_close(found.mean, found.deterministic)


def test_the_mean_over_draws_converges_to_its_expectation() -> None:
    """Equal noise in all directions turns a vector, on average, into a shorter one: E[x/‖x‖] is known."""
    level, queries, draws = 1.0, torch.tensor([8]), 20_000
    found = similarities(sincos_positions(GRID, DIM), torch.eye(DIM), level, queries, draws)
    length = math.sqrt(DIM / 2) / level
    kept = gamma((DIM + 1) / 2) / gamma(DIM / 2 + 1) * length / math.sqrt(2)
    kept *= hyp1f1(0.5, DIM / 2 + 1, -(length**2) / 2)
    assert 0.5 < kept < 0.95
    torch.testing.assert_close(found.mean, float(kept) * found.deterministic, rtol=0, atol=0.005)
    few = similarities(sincos_positions(GRID, DIM), torch.eye(DIM), level, queries, 20)
    assert (few.mean - kept * found.deterministic).abs().max() > (found.mean - kept * found.deterministic).abs().max()
    assert torch.equal(few.one_draw, found.one_draw)


@pytest.mark.parametrize("kind", ["stop", "mae", "data2vec", "learned"])
def test_the_positions_figure_is_drawn_for_every_method(kind: str, runs: dict[str, Path], tmp_path: Path) -> None:
    made = draw_positions(open_model(runs[kind]), tmp_path, queries=["2,3"], draws=8, noise_std=0.5)
    saved = np.load(made.data)
    assert saved["mean"].shape == (1, 64) and saved["queries"].tolist() == [10]
    assert saved["deterministic"][0, 10] == pytest.approx(1.0, abs=1e-5)
    assert saved["noise_std"] == 0.5
    assert Image.open(made.picture).size[0] > 400


def test_rows_and_columns_are_counted_from_one(stop: OpenedModel, tmp_path: Path) -> None:
    corners = draw_positions(stop, tmp_path, queries=["1,1", "8,8"], draws=1)
    assert np.load(corners.data)["queries"].tolist() == [0, 63]
    assert [row["query"] for row in corners.rows] == ["row 1, column 1", "row 8, column 8"]
    for outside in ("0,1", "1,0", "9,1", "1,9"):
        with pytest.raises(UserError, match="rows are 1 to 8, columns 1 to 8"):
            draw_positions(stop, tmp_path, queries=[outside])


@pytest.mark.parametrize("level", [-0.1, math.inf, math.nan])
def test_a_noise_level_that_is_none_is_refused(level: float, stop: OpenedModel, tmp_path: Path) -> None:
    for draw in (lambda: draw_positions(stop, tmp_path, noise_std=level), lambda: noise_of(stop, level)):
        with pytest.raises(UserError, match="must be a standard deviation"):
            draw()


# Blur


def test_variances_of_the_bands_sum_to_the_trace_of_the_covariance() -> None:
    a = matrix()
    bands = frequency_bands(a, sincos_positions(GRID, DIM), GRID, 0.3)
    assert float(bands.noise.sum()) == pytest.approx(0.09 * float((a @ a.T).trace()), rel=1e-5)
    assert float(bands.wavelengths[0]) == pytest.approx(2 * math.pi)


def test_each_band_has_the_variance_of_its_own_sines_and_cosines() -> None:
    positions = sincos_positions(GRID, DIM)
    noise = 0.3 * normal(sample_keys(1, torch.arange(50_000)), 24) @ matrix().T
    bands = frequency_bands(matrix(), positions, GRID, 0.3)
    quarter = DIM // 4
    for band in (0, 3, 7):
        for part in (0, 1):  # columns, rows
            pair = [2 * part * quarter + band, (2 * part + 1) * quarter + band]
            assert float(bands.noise[part, band]) == pytest.approx(float(noise[:, pair].var(dim=0).sum()), rel=0.03)
            expected = np.var(positions[:, pair].numpy(), axis=0).sum()
            assert float(bands.signal[part, band]) == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_noise_on_high_frequencies_alone_is_found_there() -> None:
    weights = torch.ones(4, DIM // 4)
    weights[:, : DIM // 8] = 2.0  # each quarter of ψ begins with its highest frequencies
    bands = frequency_bands(weights.flatten().diag(), sincos_positions(GRID, DIM), GRID, 1.0)
    assert bands.high_to_low == pytest.approx(4.0)
    flat = frequency_bands(torch.eye(DIM), sincos_positions(GRID, DIM), GRID, 0.7)
    assert torch.allclose(flat.shape, torch.ones_like(flat.shape))
    assert (flat.relative[:, 1:] > flat.relative[:, :-1]).all()  # longer waves vary less over a grid


def test_eigenvalues_are_numpys_and_equal_ones_have_full_rank() -> None:
    a = matrix(columns=20)
    found = spectrum(a, 0.5)
    expected = np.linalg.eigvalsh(0.25 * a.double().numpy() @ a.double().numpy().T)[::-1]
    np.testing.assert_allclose(found.eigenvalues.numpy(), expected, atol=1e-9)
    assert int((found.eigenvalues > 1e-9).sum()) == 20
    assert spectrum(torch.eye(DIM), 0.1).effective_rank == pytest.approx(DIM, rel=1e-4)


def test_chance_is_what_random_directions_give() -> None:
    eigenvalues = torch.tensor([20.0, 6.0, 3.0] + [0.5] * (DIM - 3))
    ratios = []
    for key in range(400):
        turned = torch.linalg.qr(normal(sample_keys(key, torch.arange(DIM)), DIM))[0] * eigenvalues.sqrt()
        ratios.append(frequency_bands(turned, sincos_positions(GRID, DIM), GRID, 1.0).high_to_low)
    assert spectrum(turned, 1.0).ratio_by_chance == pytest.approx(float(np.std(np.log(ratios))), rel=0.12)
    assert spectrum(torch.eye(DIM), 1.0).ratio_by_chance == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("level", [0.05, 0.2, 0.5])
def test_levels_at_which_places_are_lost_agree_with_the_location_blur(level: float) -> None:
    positions = sincos_positions(GRID, DIM)
    _, kept = location_blur(matrix(), positions, GRID, level, key=3, draws=8)
    levels = moving_levels(matrix(), positions, key=3, draws=8)
    assert float((levels > level).float().mean()) == pytest.approx(kept, abs=1e-3)
    assert kept < 1 or level < 0.1


def test_the_caption_says_at_which_level_the_blur_would_start(runs: dict[str, Path], tmp_path: Path) -> None:
    path = runs["mae"] / "metrics.jsonl"
    assert not any(json.loads(line)["location_blur"] for line in path.read_text().splitlines())
    made = draw_blur([open_model(runs["mae"]), open_model(runs["data2vec"]), open_model(runs["sincos"])], tmp_path)
    assert any(line.startswith("mae: the location blur in the log is zero") for line in made.lines)
    assert not any(line.startswith("sincos: the location blur") for line in made.lines)
    saved = json.loads(made.data.read_text())[str(runs["mae"])]
    start, opened = saved["noise_std_where_1_percent_are_misplaced"], open_model(runs["mae"])
    key = stream_key(0, "noise of the blur figure")
    kept = [
        location_blur(opened.matrix, opened.positions, (8, 8), share * start, key, draws=32)[1]
        for share in (0.98, 1.02)
    ]
    assert kept[0] >= 0.99 - 1e-9 >= kept[1] - 0.001 and kept[0] >= kept[1]
    assert Image.open(made.picture).size[0] > 1000


def test_learned_positions_have_no_frequencies(runs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="have no frequencies"):
        noise_of(open_model(runs["learned"]))
