"""`ablate` from the question to the table: nothing is done twice, nothing half done is reported."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file
from small_study import asked, base, recording, said

from flexpredict import pretraining
from flexpredict.commands import ablate_task
from flexpredict.data.scenes.scenes import scene_answers
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError
from flexpredict.evaluation.location import evaluate_location
from flexpredict.studies.ablations import ablating, measuring
from flexpredict.studies.ablations.ablating import ablate
from flexpredict.studies.ablations.planning import make_agenda
from flexpredict.studies.ablations.processes import INTERRUPTED

LOCATION = ("location share", "place R²", "lost, 1/2 patch", "lost, 1 patch")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("quick_measures")
def test_a_study_is_run_measured_and_written(tmp_path: Path, in_process: list[str]) -> None:
    console = recording()
    assert ablate(asked(tmp_path, "table6", labels=[0.5, 1.0]), console=console)
    out = tmp_path / "table6"
    lines = (out / "table.md").read_text().splitlines()
    assert lines[2].startswith(
        "| arm | linear, 50 % labels | diff. | linear, 100 % labels | diff. | 20-NN | diff. | count | diff."
    )
    assert [line.split(" | ")[0] for line in lines[4:7]] == ["| sin-cos", "| learned", "| StoP"]
    assert "54.3" in lines[4] and "+3.5" in lines[6]
    assert lines[10] == "| arm | " + " | diff. | ".join(LOCATION) + " | diff. |"
    assert lines[-1].startswith("Seeds 0, 1; pre-trained on scenes:64,size=32 for 2 steps of 8 images. Measured")
    summary, seeds = rows_of(out / "table.csv"), rows_of(out / "seeds.csv")
    assert len(seeds) == 6 and {row["seed"] for row in seeds} == {"0", "1"}
    saved = json.loads((out / "results.json").read_text())
    for name in ("linear, 100 % labels", "20-NN", *LOCATION):
        # The means are those of the CSV, computed here on their own.
        ours = np.array([float(row[name]) for row in seeds if row["arm"] == "StoP"])
        assert [f"{value:.4f}" for value in saved["arms"][2]["numbers"][name]] == [f"{value:.4f}" for value in ours]
        assert float(summary[2][name]) == pytest.approx(ours.mean(), abs=1e-3)
        half = 12.706 * ours.std(ddof=1) / 2**0.5
        assert float(summary[2][f"{name}, half interval"]) == pytest.approx(half, abs=1e-3)
    with Image.open(out / "figure.png") as figure:
        assert min(figure.size) > 400 and len(set(figure.convert("L").resize((200, 100)).get_flattened_data())) > 20
    assert "6 runs to do: 12 steps of 100 ms, and 2 s a run to start and to measure: about 13 s" in said(console)


@pytest.mark.usefixtures("no_figures")
def test_location_is_measured_as_evaluate_location_does_and_nothing_stays_in_the_cache(
    tmp_path: Path, in_process: list[str]
) -> None:
    assert ablate(asked(tmp_path, "lr", seeds=1, levels=[1e-3, 2e-3]), console=recording())
    run = tmp_path / "runs" / "optimizer.lr=0.001-seed=0"
    numbers = json.loads((run / "measured.json").read_text())["numbers"]
    assert not (run / ".features").exists() and not (tmp_path / "cache" / "features").exists()
    train, test = open_source("scenes:64,size=32"), open_source("scenes:40,size=32,split=test")
    alone = evaluate_location(open_encoder(run), train, test, shifts=1, images=30, out=None).numbers
    assert numbers["location share"] == alone["location share"]
    assert numbers["lost, 1 patch"] == alone["accuracy lost, 1 patch"]


@pytest.mark.usefixtures("quick_measures", "no_figures")
def test_validation_images_are_measured_and_named(tmp_path: Path, in_process: list[str]) -> None:
    console = recording()
    small = base(data="scenes:160,size=32", epochs=0.1)
    assert ablate(
        asked(tmp_path, "lr", base=small, test=None, holdout=0.25, seeds=1, levels=[1e-3, 2e-3]), console=console
    )
    text = said(console)
    assert "Measured on 40 validation images: scenes:160,size=32,part=0-0.25 (held out before pre-training)" in text
    data = json.loads((tmp_path / "runs" / "optimizer.lr=0.001-seed=0" / "data.json").read_text())
    assert data["images"] == 120


@pytest.mark.usefixtures("quick_measures", "no_figures")
def test_a_study_tested_on_its_training_images_says_so_everywhere(tmp_path: Path, in_process: list[str]) -> None:
    console, own = recording(), "scenes:64,size=32"
    request = asked(tmp_path, "lr", test=own, transfer=[own, own], seeds=1, levels=[1e-3, 2e-3])
    assert ablate(request, console=console)
    sentence = "All 64 test images are also training images."
    saved = json.loads((tmp_path / "lr" / "results.json").read_text())
    assert saved["warnings"] == [sentence, f"transfer, linear: {sentence}"]
    assert f"WARNING: {sentence}" in said(console) and sentence in (tmp_path / "lr" / "table.md").read_text()


@pytest.mark.usefixtures("quick_measures", "no_figures")
def test_what_is_done_is_not_done_again(tmp_path: Path, in_process: list[str]) -> None:
    ablate(asked(tmp_path, "table6", seeds=1), console=recording())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*.safetensors")}
    in_process.clear()
    console = recording()
    ablate(asked(tmp_path, "table7", seeds=1), console=console)
    # Table 7 shares its first and last arm with table 6.
    assert sorted(in_process) == [
        f"positions.noise_on={where}-positions.noise_to_signal=0.2-seed=0" for where in ("both", "context")
    ]
    assert "2 runs to do" in said(console)
    in_process.clear()
    ablate(asked(tmp_path, "table7", seeds=1), console=recording())
    assert in_process == []
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.usefixtures("quick_measures", "no_figures")
def test_other_measures_of_the_same_runs_are_taken_without_training(tmp_path: Path, in_process: list[str]) -> None:
    request = asked(tmp_path, "lr", seeds=1, levels=[1e-3, 2e-3])
    ablate(request, console=recording())
    first = json.loads((tmp_path / "runs" / "optimizer.lr=0.001-seed=0" / "measured.json").read_text())
    assert [name for name in measuring.TASKS if name in first["numbers"]] == ["count", "distance", "localization"]
    weights = {path: path.read_bytes() for path in tmp_path.glob("runs/*/encoder.safetensors")}
    in_process.clear()
    ablate(dataclasses.replace(request, labels=[0.5]), console=recording())
    assert len(in_process) == 2
    assert list(rows_of(tmp_path / "lr" / "table.csv")[0])[5] == "linear, 50 % labels"
    assert weights == {path: path.read_bytes() for path in weights}


def test_parts_of_scenes_have_the_answers_of_their_own_scenes() -> None:
    part = open_source("scenes:60,size=32,seed=3,part=0.5-1")
    assert isinstance(part, SubsetSource)
    answers = scene_answers(part.indices.numpy(), size=32, seed=3)
    for task, labeled in zip(measuring.TASKS, measuring._labeled(part), strict=True):
        assert labeled.labels is not None and labeled.labels.tolist() == answers[task].tolist()
        assert labeled.fingerprint() == part.fingerprint(), "so that its features are there already"


@pytest.mark.usefixtures("quick_measures", "no_figures")
def test_the_answers_of_scenes_are_found_once_for_all_tasks(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_of: list[str] = []

    def answers(indices: NDArray[np.int64], **how: Any) -> dict[str, NDArray[np.int64]]:
        asked_of.append(how["split"])
        return scene_answers(indices, **how)

    monkeypatch.setattr(measuring, "scene_answers", answers)
    ablate(asked(tmp_path, "table6", seeds=1, arms=["StoP"]), console=recording())
    runs = len(list((tmp_path / "runs").glob("*/measured.json")))
    assert runs and asked_of == ["train", "test"] * runs


@pytest.mark.usefixtures("no_figures")
def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = (asked(tmp_path / name, "fig4", seeds=1, test=None, levels=[0.5]) for name in ("whole", "parts"))
    assert ablate(whole, console=recording())
    with monkeypatch.context() as broken:

        def killed(*given: Any, **named: Any) -> Any:
            raise KeyboardInterrupt

        broken.setattr(pretraining.Training, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            ablate(parts, console=recording())
    first = next(iter(make_agenda(parts, recording()).work.values()))
    assert not first.begun and first.steps_left == 2, "a start that fails leaves nothing behind"
    assert ablate(parts, console=recording())
    one, other = (
        load_file(tmp_path / name / "runs" / first.name / "encoder.safetensors") for name in ("whole", "parts")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_is_stopped_stops_the_study_without_a_table(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablate_task, "carry_out", lambda task: INTERRUPTED)
    console = recording()
    assert not ablate(asked(tmp_path, "table6"), console=console)
    assert "Run the same command again to continue" in said(console)
    assert len(in_process) == 1 and not (tmp_path / "table6").exists()


@pytest.mark.usefixtures("no_figures")
def test_a_run_of_another_recipe_is_not_taken_for_the_answer(tmp_path: Path, in_process: list[str]) -> None:
    assert ablate(asked(tmp_path, "fig4", seeds=1), console=recording())
    mae = {"method": "mae", "positions": {"kind": "stochastic"}}
    for change in (mae, {"epochs": 0.125}, {"batch_size": 4}, {"data": "scenes:60,size=32"}):
        with pytest.raises(UserError, match=r"was started with|not those that"):
            ablate(asked(tmp_path, "fig4", seeds=1, base=base(**change)), console=recording())


@pytest.mark.usefixtures("no_figures")
def test_norms_come_from_the_logs(tmp_path: Path, in_process: list[str]) -> None:
    assert ablate(asked(tmp_path, "fig4", seeds=1, test=None), console=recording())
    rows = rows_of(tmp_path / "fig4" / "seeds.csv")
    assert [float(row["level"]) for row in rows] == [0.0, 0.08, 0.2, 0.39, 0.78]
    state = load_file(
        tmp_path / "runs" / "positions.kind=sincos-seed=0" / "checkpoints" / "last" / "model.safetensors"
    )
    assert float(rows[0]["‖A‖"]) == pytest.approx(float(state["predictor.projection.weight"].norm()), rel=0.02)


def test_where_measures_each_freedom_on_its_own_scenes(tmp_path: Path, in_process: list[str]) -> None:
    small = base(data="scenes:120,size=32", epochs=0.1)
    request = asked(tmp_path, "where", base=small, test=None, seeds=1, levels=[0.5], where=[0.0, 1.0])
    assert ablate(request, console=recording())
    rows = rows_of(tmp_path / "where" / "table.csv")
    assert [(row["series"], float(row["level"])) for row in rows] == [
        (f"where={freedom}", level) for freedom in (0, 1) for level in (0.0, 0.5)
    ]
    seeds = rows_of(tmp_path / "where" / "seeds.csv")
    for row in rows[1::2]:
        for name in ("count", "distance", "20-NN", "place R²", "location share"):
            sincos, noisy = (float(seed[name]) for seed in seeds if seed["series"] == row["series"])
            assert float(row[f"{name}, difference"]) == pytest.approx(noisy - sincos, abs=1e-3)
    run = next((tmp_path / "runs").glob("*where=1-positions.kind=sincos-seed=0"))
    result = json.loads((run / "probe.json").read_text())
    assert result["protocol"]["train"]["data"] == "scenes:120,size=32,seed=0,where=1"
    assert result["protocol"]["test"]["data"] == "scenes:24,size=32,seed=0,where=1,split=test,first=10000"
    assert (tmp_path / "where" / "figure.png").is_file()


@pytest.mark.usefixtures("quick_measures")
def test_a_dry_run_tries_out_every_arm_and_starts_nothing(tmp_path: Path, tasks_in_process: list[str]) -> None:
    console = recording()
    assert not ablate(asked(tmp_path, "l1", dry_run=True), console=console)
    text = said(console)
    assert tasks_in_process == ["0"], "all arms in one task, in folders of no name"
    assert "6 runs to do: 12 steps of" in text and "A dry run" in text and "positions.l1" in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("no_figures")
def test_a_run_in_a_process_of_its_own_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablating, "_estimate", lambda *given: True)
    request = asked(tmp_path / "theirs", "fig4", seeds=1, levels=[0.5], jobs=2, nice=1)
    agenda = make_agenda(dataclasses.replace(request, out=tmp_path / "ours"), recording())
    first, other = agenda.work.values()
    for run in (first, other):
        pretraining.run(run.recipe, run.folder, console=Console(quiet=True))
    shutil.copytree(first.folder, tmp_path / "theirs" / "runs" / first.name)  # one process is enough
    assert ablate(request, console=recording())
    ours, theirs = (
        load_file(tmp_path / name / "runs" / other.name / "encoder.safetensors") for name in ("ours", "theirs")
    )
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=1e-4)
