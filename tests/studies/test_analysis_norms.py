"""Figures of norms: runs of one noise level are averaged, and what contradicts the paper is said."""

import json
import math
from pathlib import Path

import pytest
from PIL import Image

from flexpredict.errors import UserError
from flexpredict.studies.analyses.norms import by_level, draw_norms, logged_run


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
    with pytest.raises(UserError, match="has no values of"):
        draw_norms([tmp_path], tmp_path / "out")
    with pytest.raises(UserError, match="no run folder"):
        draw_norms([tmp_path / "missing"], tmp_path / "out")
