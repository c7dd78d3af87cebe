"""Analyses: each figure's numbers against closed forms, and against independent computations."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import gamma, hyp1f1
from tiny import RECIPE, write_pictures
from torch import Tensor

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model.positions import location_blur, sincos_positions
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.studies.analyses import proposition1
from flexpredict.studies.analyses.blur import draw_blur, noise_of
from flexpredict.studies.analyses.covariance import frequency_bands, moving_levels, spectrum
from flexpredict.studies.analyses.norms import by_level, draw_norms, logged_run
from flexpredict.studies.analyses.opening import OpenedModel, open_model
from flexpredict.studies.analyses.positions import draw_positions, similarities
from flexpredict.studies.analyses.predictions import (
    draw_mask,
    draw_predictions,
    heatmap,
    predicted_similarity,
)
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

GRID = (5, 7)
DIM = 32
REFERENCE = Path(__file__).parents[3] / "shared" / "reference"
PREDICTOR = {"dim": None, "depth": None, "heads": None}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny run of each kind, six steps long."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pictures(folder / "pictures", 48)
    kinds: dict[str, dict[str, Any]] = {
        "sincos": {"positions": {"kind": "sincos"}},
        "stop": {"positions": {"noise_to_signal": 0.5}, "keep_every": 0.5},
        "learned": {"positions": {"kind": "learned"}},
        "mae": {"method": "mae"},
        "data2vec": {"method": "data2vec", "predictor": PREDICTOR},
        "fading": {"positions": {"schedule": "linear", "final_level": 0.0}},
        "half": {"targets": {"resolution": "half_bilinear"}, "image_size": 64, "patch_size": 8},
    }
    for name, fields in kinds.items():
        pretrain(data, folder / name, **{**RECIPE, "epochs": 1, **fields})
    return {name: folder / name for name in (*kinds, "pictures")}


@pytest.fixture(scope="module")
def stop(runs: dict[str, Path]) -> OpenedModel:
    return open_model(runs["stop"])


def matrix(columns: int = 24, key: int = 5) -> Tensor:
    return normal(sample_keys(key, torch.arange(DIM)), columns)


# Opening


def test_a_run_is_opened_as_it_was_saved_and_by_step(runs: dict[str, Path], stop: OpenedModel) -> None:
    from safetensors.torch import load_file

    saved = load_file(runs["stop"] / "checkpoints" / "last" / "model.safetensors")
    for name, tensor in stop.model.state_dict().items():
        torch.testing.assert_close(tensor, saved[name], rtol=0, atol=0)
    assert stop.step == 6 and not stop.model.training
    earlier = open_model(runs["stop"], step=3)
    assert earlier.step == 3 and not torch.equal(earlier.matrix, stop.matrix)
    assert torch.equal(earlier.new_matrix, stop.new_matrix)
    with pytest.raises(UserError, match=r"no checkpoint of step 4 .* those of 3, 6"):
        open_model(runs["stop"], step=4)


def test_the_noise_level_is_that_of_the_step(runs: dict[str, Path]) -> None:
    assert open_model(runs["sincos"]).noise_std == 0.0
    records = [json.loads(line) for line in (runs["fading"] / "metrics.jsonl").read_text().splitlines()]
    faded = open_model(runs["fading"])
    assert faded.noise_std == records[-1]["noise_std"] < records[0]["noise_std"]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference vectors beside the repository")
def test_published_checkpoints_are_opened_with_their_own_matrix_and_noise() -> None:
    stop_path, ijepa_path = (REFERENCE / name / "checkpoint.pth.tar" for name in ("stop", "ijepa"))
    released, plain = open_model(stop_path, heads=2), open_model(ijepa_path, heads=2)
    assert (released.noise_std, plain.noise_std) == (0.25, 0.0)
    tensors = torch.load(stop_path, weights_only=True, map_location="cpu")["predictor"]
    (weight,) = (tensor for name, tensor in tensors.items() if name.endswith("predictor_embed.weight"))
    assert torch.equal(released.matrix, weight.float())


def test_what_is_no_run_is_refused_in_words(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no encoder"):
        open_model(tmp_path / "missing")
    with pytest.raises(UserError, match=r"no config\.yaml"):
        open_model(tmp_path)
    with pytest.raises(UserError, match="has no predictor"):
        open_model(runs["stop"] / "encoder.safetensors")


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
    made = draw_positions(open_model(runs[kind]), tmp_path, queries=["1,2"], draws=8, noise_std=0.5)
    saved = np.load(made.data)
    assert saved["mean"].shape == (1, 64) and saved["queries"].tolist() == [10]
    assert saved["deterministic"][0, 10] == pytest.approx(1.0, abs=1e-5)
    assert saved["noise_std"] == 0.5
    assert Image.open(made.picture).size[0] > 400


# Predictions


def test_the_heatmap_is_a_softmax_of_the_cosines() -> None:
    similarity = torch.tensor([0.9, -0.2, 0.4])
    expected = np.exp(similarity.numpy() / 0.1)
    np.testing.assert_allclose(heatmap(similarity, 0.1).numpy(), expected / expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["stop", "half"])
def test_the_heatmap_peaks_where_the_token_equals_the_prediction(
    kind: str, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_model(runs[kind])
    assert isinstance(opened.model, IJEPA)
    masked = draw_mask(opened)
    pixels = torch.arange(3 * opened.image_size[0] * opened.image_size[1]).view(3, *opened.image_size).byte()
    predictions: list[Tensor] = []
    forward, features = IJEPA.forward, IJEPA.target_features

    def watched(self: IJEPA, *arguments: Tensor) -> Any:
        result = forward(self, *arguments)
        predictions.append(result.predictions[0, masked.block, masked.slot])
        return result

    planted = (masked.patch + 5) % (masked.grid[0] * masked.grid[1])

    def with_a_planted_token(self: IJEPA, images: Tensor, targets: Tensor) -> Tensor:
        found = features(self, images, targets).clone()
        if predictions:  # asked for all tokens, after the prediction
            found[0, 0, planted] = 3.0 * predictions[-1]
        return found

    monkeypatch.setattr(IJEPA, "forward", watched)
    monkeypatch.setattr(IJEPA, "target_features", with_a_planted_token)
    heat = heatmap(predicted_similarity(opened.model, pixels, masked), 0.2)
    assert len(heat) == masked.grid[0] * masked.grid[1]
    assert float(heat.sum()) == pytest.approx(1.0, abs=1e-5)
    assert int(heat.argmax()) == planted


def test_the_patch_is_hidden_from_the_context_and_by_default_inside_a_block(stop: OpenedModel) -> None:
    for seed in range(5):
        masked = draw_mask(stop, mask_seed=seed)
        assert masked.patch not in masked.context.tolist()
        rows, columns = masked.targets[0] // 8, masked.targets[0] % 8
        assert abs(masked.patch // 8 - float(rows.float().mean())) <= 0.5
        assert abs(masked.patch % 8 - float(columns.float().mean())) <= 0.5


def test_a_patch_that_is_not_predicted_is_refused_with_a_mask_that_does(stop: OpenedModel) -> None:
    shown = int(draw_mask(stop).context[0])
    place = f"{shown // 8},{shown % 8}"
    with pytest.raises(UserError, match="is not predicted under the mask") as refused:
        draw_mask(stop, place)
    seed = int(str(refused.value).split("mask_seed=")[-1].split()[0].rstrip(".,"))
    assert draw_mask(stop, place, seed).patch == shown


def test_two_runs_are_drawn_side_by_side_on_one_mask(runs: dict[str, Path], tmp_path: Path) -> None:
    models = [open_model(runs["sincos"]), open_model(runs["stop"])]
    made = draw_predictions(models, tmp_path / "figures", index=2)
    saved = np.load(made.data)
    np.testing.assert_allclose(saved["heat"].sum(axis=1), 1.0, rtol=1e-5)
    assert saved["cosine"].shape == (2, 64) and saved["image"].shape == (32, 32, 3)
    assert len(made.rows) == 2 and made.picture.is_file()
    again = draw_predictions(models[:1], tmp_path / "file", image=runs["pictures"] / "002.png")
    np.testing.assert_allclose(np.load(again.data)["cosine"][0], saved["cosine"][0], rtol=1e-5)


def test_predictions_of_other_methods_and_bad_requests_are_refused(
    runs: dict[str, Path], stop: OpenedModel, tmp_path: Path
) -> None:
    for method, reason in (("mae", "predicts pixels"), ("data2vec", "no predictor")):
        with pytest.raises(UserError, match=reason):
            draw_predictions([open_model(runs[method])], tmp_path)
    with pytest.raises(UserError, match="different grids"):
        draw_predictions([stop, open_model(runs["half"])], tmp_path, image=runs["pictures"] / "000.png")
    with pytest.raises(UserError, match="images 0 to 47"):
        draw_predictions([stop], tmp_path, index=48)
    with pytest.raises(UserError, match="temperature=0"):
        draw_predictions([stop], tmp_path, temperature=0.0)
    with pytest.raises(UserError, match="no image file"):
        draw_predictions([stop], tmp_path, image=tmp_path / "none.png")
    with pytest.raises(UserError, match=r"outside the grid of 8x8"):
        draw_predictions([stop], tmp_path, patch="8,0")
    with pytest.raises(UserError, match="is no place"):
        draw_predictions([stop], tmp_path, patch="middle")


# Norms


def write_run(folder: Path, level: float, a_norm: float, token_norm: float, scale: float | None = None) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 0\n")
    record = {"noise_std": level, "mask_token_norm": token_norm, **({} if scale is None else {"noise_scale": scale})}
    lines = [{"step": step, "A_norm": a_norm * step / 20, **record} for step in (10, 20)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 30, "A_n')
    return folder


def test_runs_of_one_level_are_averaged_with_students_interval(tmp_path: Path) -> None:
    quiet = [write_run(tmp_path / f"quiet{index}", 0.0, norm, 1.0) for index, norm in enumerate((3.0, 4.0, 5.0))]
    loud = write_run(tmp_path / "loud", 0.5, 2.0, 1.5)
    low, high = by_level([logged_run(run) for run in (*quiet, loud)])
    estimate = low.norms["A_norm"]
    assert (low.noise_std, low.runs, estimate.mean) == (0.0, 3, pytest.approx(4.0))
    assert estimate.half == pytest.approx(4.303 * 1.0 / math.sqrt(3), rel=1e-3)
    assert (high.noise_std, high.norms["A_norm"].mean, high.norms["A_norm"].half) == (0.5, 2.0, None)
    made = draw_norms([*quiet, loud], tmp_path / "out")
    assert "‖A‖ falls" in made.lines[0] and "‖m̃‖ rises" in made.lines[1]
    assert all("as in the paper" in line for line in made.lines)
    assert len(made.data.read_text().splitlines()) == 1 + 2 * 4


def test_what_contradicts_the_paper_is_said(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(level), level, 1.0 + level, 1.0) for level in (0.0, 0.25)]
    lines = draw_norms(runs, tmp_path / "out").lines
    assert "‖A‖ rises" in lines[0] and "while in the paper it falls" in lines[0]
    assert "‖m̃‖ stays as it is" in lines[1] and "With one run at a level" in lines[1]


@pytest.mark.parametrize(("gap", "certainty"), [(0.1, "may be chance"), (3.0, "larger than its 95 % interval")])
def test_a_change_within_the_intervals_is_called_so(gap: float, certainty: str, tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{level}-{seed}", level, 5.0 + 0.2 * seed - gap * level, 1.0)
        for level in (0.0, 0.5)
        for seed in range(3)
    ]
    line = draw_norms(runs, tmp_path / "out").lines[0]
    assert "‖A‖ falls" in line and line.endswith(f"{certainty}.")


def test_a_predicted_level_counts_as_that_of_its_recipe(tmp_path: Path) -> None:
    assert logged_run(write_run(tmp_path / "conditional", 0.3, 1.0, 1.0, scale=1.2)).level == pytest.approx(0.25)


def test_real_logs_are_read_and_missing_ones_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    made = draw_norms([runs["stop"], runs["mae"], runs["data2vec"]], tmp_path / "out")
    assert Image.open(made.picture).size[0] > 800
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(UserError, match="says nothing of"):
        draw_norms([tmp_path], tmp_path / "out")
    with pytest.raises(UserError, match="no run folder"):
        draw_norms([tmp_path / "missing"], tmp_path / "out")


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


@pytest.mark.parametrize("level", [-0.1, math.inf, math.nan])
def test_a_noise_level_that_is_none_is_refused(level: float, stop: OpenedModel, tmp_path: Path) -> None:
    for draw in (lambda: draw_positions(stop, tmp_path, noise_std=level), lambda: noise_of(stop, level)):
        with pytest.raises(UserError, match="must be a standard deviation"):
            draw()


def test_learned_positions_have_no_frequencies(runs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="have no frequencies"):
        noise_of(open_model(runs["learned"]))


# Proposition 1


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


def test_the_figure_of_the_proposition_comes_with_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposition1, "SAMPLES", (128, 1024))
    made = proposition1.draw_proposition1(tmp_path)
    header, *rows = made.data.read_text().splitlines()
    assert header.startswith("prior,samples,error_of_learned") and len(rows) == 4
    assert Image.open(made.picture).size[0] > 1000


def test_no_predictor_has_a_smaller_error_than_the_best_one() -> None:
    assert error(UNIFORM, lambda r: best_predictor(clean, UNIFORM.density, NOISE, r)) == 0.0
    assert error(UNIFORM, learned_predictor(UNIFORM, 4096, 1)) > 0.0
