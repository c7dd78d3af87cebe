"""Ablations: paired arms that differ in one thing, numbers with honest intervals, and nothing done twice."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file
from tiny import RECIPE

from flexpredict.ablations import ablating, measuring, runs
from flexpredict.ablations.ablating import Ablation, ablate, default_test
from flexpredict.ablations.runs import planned
from flexpredict.ablations.studies import Arm, Study, find_studies, ratio
from flexpredict.ablations.summary import Estimate, as_markdown, summarise, table
from flexpredict.data.sources import open_images
from flexpredict.errors import UserError
from flexpredict.positions import noise_std_at_start
from flexpredict.training.plan import make_plan

DATA = "scenes:64,size=32"
NAMES = ("table6", "table7", "table8", "fig3", "fig4", "l1", "covariance")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXPREDICT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the few steps that tell how long it will take."""
    monkeypatch.setattr(ablating, "seconds_a_step", lambda run, source: 0.1)


def base(**fields: Any) -> dict[str, Any]:
    small = {"model_options": {"embed_dim": 24, "depth": 1, "num_heads": 2}, "predictor": {"dim": 16, "depth": 1}}
    return {**RECIPE, **small, "data": DATA, "epochs": 0.25, "log_every": 1, **fields}


def asked(out: Path, *names: str, seeds: int = 2, **changes: Any) -> Ablation:
    studies = [study for name in names for study in find_studies(name)]
    test = "scenes:40,size=32,split=test"
    return Ablation(studies, base(), test, tuple(range(seeds)), out, **{"labels": (0.5, 1.0), **changes})


def said(console: Console) -> str:
    return " ".join(console.export_text().split())


def recording() -> Console:
    return Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: PTH123 (lives as long as it)


def test_every_arm_of_every_study_can_be_planned() -> None:
    source = open_images(DATA)
    for study in find_studies("all"):
        assert study.arms[0].fields["positions"] == {"kind": "sincos"}, "the baseline is I-JEPA's own"
        for run in planned([study], [0], base(), Path("out")):
            make_plan(run.recipe(), source, torch.device("cpu"), 1).build_model()
    assert [study.name for study in find_studies("all")] == list(NAMES)


def test_the_papers_numbers_are_beside_the_arms() -> None:
    papers = {study.name: [arm.paper for arm in study.arms] for study in find_studies("all")}
    assert papers["table6"] == [54.3, 54.4, 57.8]
    assert papers["table7"] == [54.3, 55.1, 56.8, 57.8]
    assert papers["table8"] == [54.3, 52.1, 54.1, 57.8]
    assert papers["l1"] == [54.3, 55.8, 57.8]


def test_a_level_is_the_same_share_of_noise_at_every_width() -> None:
    assert noise_std_at_start(ratio(0.25), 768) == pytest.approx(0.25)
    assert noise_std_at_start(ratio(0.25), 96) == pytest.approx(0.25 * (768 / 96) ** 0.5)


def test_arms_of_one_seed_start_equal_and_see_the_same(tmp_path: Path) -> None:
    source = open_images(DATA)
    states = {}
    for run in planned(find_studies("all"), [0], base(), tmp_path):
        plan = make_plan(run.recipe(), source, torch.device("cpu"), 1)
        states[run.folder.name] = (plan.build_model().state_dict(), plan)
    reference, plan = states["kind=sincos-seed=0"]
    assert len(states) > 12
    for name, (state, other) in states.items():
        shared = [key for key in reference if key in state and not key.endswith("pos_embed")]
        assert len(shared) >= len(reference) - 2
        for key in shared:
            assert torch.equal(state[key], reference[key]), f"{name}: {key}"
        assert (other.steps, other.batch_size, other.lr) == (plan.steps, plan.batch_size, plan.lr)


def test_a_study_is_run_measured_and_written(tmp_path: Path, unmeasured: None) -> None:
    console = recording()
    assert ablate(asked(tmp_path, "table6"), console=console)
    out = tmp_path / "table6"
    lines = (out / "table.md").read_text().splitlines()
    assert lines[0].startswith("| arm | linear, 50 % labels | difference | linear, 100 % labels | difference | paper")
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| sin-cos", "| learned", "| StoP"]
    assert "54.3" in lines[2] and "+3.5" in lines[4]
    with (out / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and {row["seed"] for row in rows} == {"0", "1"}
    saved = json.loads((out / "results.json").read_text())
    stop = saved["arms"][2]["measured"]
    assert [f"{numbers['linear, 100 % labels']:.4f}" for numbers in stop] == [
        row["linear, 100 % labels"] for row in rows if row["arm"] == "StoP"
    ]
    # The means are those of the CSV, computed here on their own.
    ours = np.array([float(row["linear, 100 % labels"]) for row in rows if row["arm"] == "StoP"])
    assert f"{ours.mean():.1f}" in lines[4]
    with Image.open(out / "figure.png") as figure:
        assert min(figure.size) > 400 and len(set(figure.convert("L").resize((200, 100)).get_flattened_data())) > 20
    assert "6 of 6 runs to do" in said(console)


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unmeasured: None) -> None:
    ablate(asked(tmp_path, "table6", seeds=1), console=recording())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/encoder.safetensors")}
    began: list[str] = []
    original = runs._carry_out
    monkeypatch.setattr(runs, "_carry_out", lambda run, *rest: began.append(run.folder.name) or original(run, *rest))
    probes: list[Any] = []
    probed = measuring.probe
    monkeypatch.setattr(measuring, "probe", lambda *given, **named: probes.append(given) or probed(*given, **named))
    console = recording()
    ablate(asked(tmp_path, "table6", "table7", seeds=1), console=console)
    # Table 7 shares its first and last arm with table 6.
    assert sorted(began) == sorted(
        f"kind=stochastic-noise_on={where}-noise_to_signal={round(ratio(0.25), 6)}-seed=0"
        for where in ("both", "context")
    )
    assert len(probes) == 2
    assert "2 of 5 runs to do" in said(console)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, parts = (planned(find_studies("table6"), [0], base(), tmp_path / name)[:1] for name in ("whole", "parts"))
    source = open_images(DATA)
    assert all(finished for _, finished in runs.carry_out(whole, source, 1))

    class KillError(Exception):
        pass

    original = runs.pretraining.train

    def killed(*given: Any, **named: Any) -> Any:
        raise KillError

    runs.pretraining.train = killed  # type: ignore[assignment]
    try:
        with pytest.raises(KillError):
            list(runs.carry_out(parts, source, 1))
    finally:
        runs.pretraining.train = original
    assert all(finished for _, finished in runs.carry_out(parts, source, 1))
    for one, other in zip(whole, parts, strict=True):
        first, second = (load_file(run.folder / "encoder.safetensors") for run in (one, other))
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_runs_side_by_side_are_the_same_runs(tmp_path: Path) -> None:
    one = planned(find_studies("table6"), [0], base(), tmp_path / "one")
    two = planned(find_studies("table6"), [0], base(), tmp_path / "two")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert all(finished for _, finished in runs.carry_out(one, open_images(DATA), 1))
    finally:
        torch.set_num_threads(threads)
    assert all(finished for _, finished in runs.carry_out(two, open_images(DATA), 2))
    for first, second in zip(one, two, strict=True):
        ours, theirs = (load_file(run.folder / "encoder.safetensors") for run in (first, second))
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=1e-4)


def test_a_dry_run_shows_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    console = recording()
    assert not ablate(asked(tmp_path, "fig4"), dry_run=True, console=console)
    text = said(console)
    assert "10 of 10 runs to do, 20 steps" in text and "A dry run" in text and "noise_to_signal" in text
    assert not (tmp_path / "runs").exists()


def test_norms_come_from_the_logs(tmp_path: Path, unmeasured: None) -> None:
    assert ablate(asked(tmp_path, "fig4", seeds=1), console=recording())
    with (tmp_path / "fig4" / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["level"]) for row in rows] == [0.0, 0.1, 0.25, 0.5, 1.0]
    state = load_file(tmp_path / "runs" / "kind=sincos-seed=0" / "checkpoints" / "last" / "model.safetensors")
    assert float(rows[0]["‖A‖"]) == pytest.approx(float(state["predictor.projection.weight"].norm()), rel=0.02)


def test_differences_are_paired_by_seed() -> None:
    study = Study("x", "?", (Arm("a", {}, 50.0), Arm("b", {}, 53.0)))
    # Seeds differ much more than arms do: only pairing shows that b is better by exactly one.
    measured = {"a": [{"n": 10.0}, {"n": 30.0}, {"n": 50.0}], "b": [{"n": 11.0}, {"n": 31.0}, {"n": 51.0}]}
    rows = summarise(study, measured)
    assert rows[1].differences["n"].mean == pytest.approx(1.0) and rows[1].differences["n"].half == pytest.approx(0.0)
    assert rows[1].numbers["n"].half == pytest.approx(4.303 * 20 / 3**0.5, rel=1e-3)
    assert rows[1].paper_difference == pytest.approx(3.0)
    text = as_markdown(table(study, rows))
    assert "| b | 31.0 ± 49.7 | +1.0 ± 0.0 | 53.0 | +3.0 |" in text
    assert Estimate.of([4.0]).in_words() == "4.0", "one value has no interval"


def test_what_cannot_be_done_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no ablation 'table5'.*table6"):
        find_studies("table5")
    odd = Ablation(
        find_studies("table8"), base(image_size=28), "scenes:40,size=32,split=test", (0,), tmp_path, (1.0,)
    )
    with pytest.raises(UserError, match=r"half_bilinear.*cannot be run.*even"):
        ablate(odd, console=recording())
    with pytest.raises(UserError, match="classes"):
        ablate(asked(tmp_path, "table6", labels=(0.01,)), console=recording())
    with pytest.raises(UserError, match="jobs is 0"):
        ablate(asked(tmp_path, "table6", jobs=0), console=recording())
    assert not (tmp_path / "runs").exists()


def test_only_the_scenes_have_test_images_of_their_own() -> None:
    assert default_test("scenes:300,size=32") == "scenes:2000,size=32,split=test,first=10000"
    assert default_test("scenes") == "scenes:2000,size=64,split=test,first=10000"
    assert default_test("photos") is None and default_test(["scenes"]) is None
    first, later = open_images("scenes:3,size=32,split=test"), open_images("scenes:2,size=32,split=test,first=1")
    assert np.array_equal(first.encoded(1), later.encoded(0)), "first= is where they begin"  # type: ignore[union-attr]


def test_stopping_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unmeasured: None) -> None:
    console = recording()
    monkeypatch.setattr(ablating, "carry_out", lambda pending, source, jobs: iter([(pending[0], False)]))
    assert not ablate(asked(tmp_path, "table6"), console=console)
    assert "The same command goes on" in said(console)
