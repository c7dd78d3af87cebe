"""Ablations: paired arms that differ in one thing, numbers with honest intervals, and nothing done twice."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file
from tiny import RECIPE

from flexpredict import pretraining
from flexpredict.data.sources.opening import open_images
from flexpredict.errors import UserError
from flexpredict.masking import patches_of_cells, sample_masks
from flexpredict.settings.positions import noise_std_at_start
from flexpredict.studies.ablations import ablating, measuring, training
from flexpredict.studies.ablations.ablating import Ablation, ablate, default_test
from flexpredict.studies.ablations.runs import ArmRun, planned, steps_left
from flexpredict.studies.ablations.studies import Arm, Study, find_studies, ratio
from flexpredict.studies.ablations.summary import Estimate, as_markdown, summarise, table
from flexpredict.studies.ablations.training import carry_out
from flexpredict.training.plan import make_plan

DATA = "scenes:64,size=32"
NAMES = ("table6", "table7", "table8", "fig3", "fig4", "l1", "covariance")


class InProcess:
    """A run that is over before anyone asks, without the seconds that a new process takes to begin."""

    def __init__(self, run: ArmRun) -> None:
        self.finished = pretraining.run(
            run.recipe(), run.folder, resume=run.begun, console=Console(quiet=True)
        ).finished

    def poll(self) -> int:
        return 0 if self.finished else training.INTERRUPTED

    def terminate(self) -> None: ...

    def wait(self) -> int:
        return self.poll()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs in this process, and without the few steps that tell how long it will take; the names of those begun."""
    begun: list[str] = []
    monkeypatch.setattr(ablating, "seconds_a_step", lambda run, plan: 0.1)
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_LOOKS", 0.0)

    def begin(run: ArmRun, out: Path, slot: int, jobs: int) -> InProcess:
        begun.append(run.folder.name)
        return InProcess(run)

    monkeypatch.setattr(training, "begin", begin)
    return begun


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
        assert (other.steps, other.recipe.batch_size) == (plan.steps, plan.recipe.batch_size)
        assert other.recipe.optimizer == plan.recipe.optimizer


def test_a_study_is_run_measured_and_written(tmp_path: Path, in_process: list[str]) -> None:
    console = recording()
    assert ablate(asked(tmp_path, "table6"), console=console)
    out = tmp_path / "table6"
    lines = (out / "table.md").read_text().splitlines()
    assert lines[0].startswith("| arm | linear, 50 % labels | diff. | linear, 100 % labels | diff. | paper")
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| sin-cos", "| learned", "| StoP"]
    assert "54.3" in lines[2] and "+3.5" in lines[4]
    with (out / "table.csv").open(newline="") as file:
        summary = list(csv.DictReader(file))
    with (out / "seeds.csv").open(newline="") as file:
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
    assert float(summary[2]["linear, 100 % labels"]) == pytest.approx(ours.mean(), abs=1e-3)
    half = 12.706 * ours.std(ddof=1) / 2**0.5
    assert float(summary[2]["linear, 100 % labels, half interval"]) == pytest.approx(half, abs=1e-3)
    with Image.open(out / "figure.png") as figure:
        assert min(figure.size) > 400 and len(set(figure.convert("L").resize((200, 100)).get_flattened_data())) > 20
    assert "6 of 6 runs to do" in said(console)


def test_what_is_done_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: list[str]
) -> None:
    ablate(asked(tmp_path, "table6", seeds=1), console=recording())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/encoder.safetensors")}
    in_process.clear()
    probes: list[Any] = []
    probed = measuring.probe
    monkeypatch.setattr(measuring, "probe", lambda *given, **named: probes.append(given) or probed(*given, **named))
    console = recording()
    ablate(asked(tmp_path, "table6", "table7", seeds=1), console=console)
    # Table 7 shares its first and last arm with table 6.
    assert sorted(in_process) == sorted(
        f"kind=stochastic-noise_on={where}-noise_to_signal={round(ratio(0.25), 6)}-seed=0"
        for where in ("both", "context")
    )
    assert len(probes) == 2
    assert "2 of 5 runs to do" in said(console)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path: Path, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = (planned(find_studies("table6"), [0], base(), tmp_path / name)[:1] for name in ("whole", "parts"))
    assert all(finished for _, finished in carry_out(whole, tmp_path, 1))
    with monkeypatch.context() as broken:

        def killed(*given: Any, **named: Any) -> Any:
            raise KeyboardInterrupt

        broken.setattr(pretraining, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            list(carry_out(parts, tmp_path, 1))
    assert parts[0].begun and steps_left(parts[0], open_images(DATA)) == 2
    assert all(finished for _, finished in carry_out(parts, tmp_path, 1))
    first, second = (load_file(run.folder / "encoder.safetensors") for run in (whole[0], parts[0]))
    assert all(torch.equal(first[name], second[name]) for name in first)


class Fake:
    """A process that ends when told."""

    def __init__(self, code: int | None) -> None:
        self.code, self.asked_to_leave = code, False

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.asked_to_leave = True

    def wait(self) -> int:
        return self.code or 0


@pytest.mark.parametrize("code", [training.INTERRUPTED, 1])
def test_when_a_run_is_stopped_or_fails_the_others_are_asked_to_leave_and_none_is_begun(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Fake] = []

    def begin(run: ArmRun, out: Path, slot: int, jobs: int) -> Fake:
        begun.append(Fake(code if len(begun) == 1 else None))
        (out / "logs").mkdir(exist_ok=True)
        (out / "logs" / f"{run.folder.name}.log").write_text("no space left")
        return begun[-1]

    monkeypatch.setattr(training, "begin", begin)
    waiting = planned(find_studies("table7"), [0, 1], base(), tmp_path)
    if code == 1:
        with pytest.raises(UserError, match="no space left"):
            list(carry_out(waiting, tmp_path, 2))
    else:
        assert [finished for _, finished in carry_out(waiting, tmp_path, 2)] == [False]
    assert len(begun) == 2 and begun[0].asked_to_leave


def test_runs_in_processes_of_their_own_are_the_same_runs(tmp_path: Path) -> None:
    ours, theirs = (planned(find_studies("table6"), [0], base(), tmp_path / name)[:2] for name in ("a", "b"))
    for run in ours:
        pretraining.run(run.recipe(), run.folder, console=Console(quiet=True))
    assert len([run for run, finished in carry_out(theirs, tmp_path, 2) if finished]) == 2
    for one, other in zip(ours, theirs, strict=True):
        first, second = (load_file(run.folder / "encoder.safetensors") for run in (one, other))
        for name in first:
            torch.testing.assert_close(first[name], second[name], atol=1e-5, rtol=1e-4)


def test_a_run_of_another_recipe_is_not_taken_for_the_answer(tmp_path: Path, in_process: list[str]) -> None:
    request = asked(tmp_path, "fig4", seeds=1)
    assert ablate(request, console=recording())
    for change in ({"method": "mae"}, {"epochs": 0.125}, {"batch_size": 4}, {"data": "scenes:60,size=32"}):
        with pytest.raises(UserError, match=r"was begun with|not those that"):
            ablate(replace(request, base={**request.base, **change}), console=recording())


def test_masks_of_table_8_are_the_same_in_all_arms(tmp_path: Path) -> None:
    source = open_images(DATA)
    areas = []
    for run in planned(find_studies("table8"), [0], base(), tmp_path):
        plan = make_plan(run.recipe(), source, torch.device("cpu"), 1)
        model = plan.build_model()
        images = torch.zeros(1, 3, 32, 32)
        masks = sample_masks(plan.recipe.masking, model.mask_grid(images), 7, 4)
        side = 8 // model.mask_grid(images)[0]
        areas.append([patches_of_cells(part, side, (8, 8)) for part in (masks.context, masks.targets)])
    for context, targets in areas[1:]:
        assert torch.equal(context, areas[0][0]) and torch.equal(targets, areas[0][1])


def test_all_leaves_out_what_a_method_cannot_do(tmp_path: Path, in_process: list[str]) -> None:
    console = recording()
    request = replace(asked(tmp_path, *NAMES, seeds=1), base=base(method="mae"))
    ablate(request, dry_run=True, console=console)
    text = said(console)
    assert "table8 is left out" in text and "covariance" in text
    with pytest.raises(UserError, match="cannot be run"):
        ablate(replace(request, studies=find_studies("table8")), dry_run=True, console=recording())


def test_what_a_study_varies_is_not_in_the_recipe_of_all(tmp_path: Path) -> None:
    request = replace(asked(tmp_path, "table8"), base=base(targets={"resolution": "half_max"}))
    with pytest.raises(UserError, match="table8 varies resolution"):
        ablate(request, dry_run=True, console=recording())


def test_a_dry_run_measures_a_step_shows_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    console = recording()
    assert not ablate(replace(asked(tmp_path, "fig4"), test=None), dry_run=True, console=console)
    text = said(console)
    assert "10 of 10 runs to do, 20 steps" in text and "A dry run" in text and "noise_to_signal" in text
    assert not (tmp_path / "runs").exists()


def test_norms_come_from_the_logs(tmp_path: Path, in_process: list[str]) -> None:
    assert ablate(asked(tmp_path, "fig4", seeds=1), console=recording())
    with (tmp_path / "fig4" / "seeds.csv").open(newline="") as file:
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
    with pytest.raises(UserError, match=r"cannot be run.*(cell|even)"):
        ablate(odd, console=recording())
    with pytest.raises(UserError, match="classes"):
        ablate(asked(tmp_path, "table6", labels=(0.01,)), console=recording())
    with pytest.raises(UserError, match="jobs is 0"):
        ablate(asked(tmp_path, "table6", jobs=0), console=recording())
    assert not (tmp_path / "runs").exists()


def test_only_the_scenes_have_test_images_of_their_own() -> None:
    assert default_test("scenes:300,size=32") == "scenes:2000,size=32,split=test,first=10000"
    assert default_test("scenes:300,where=1") == "scenes:2000,size=64,where=1,split=test,first=10000"
    assert default_test("scenes") == "scenes:2000,size=64,split=test,first=10000"
    assert default_test("photos") is None and default_test(["scenes"]) is None
    first, later = open_images("scenes:3,size=32,split=test"), open_images("scenes:2,size=32,split=test,first=1")
    assert np.array_equal(first.encoded(1), later.encoded(0)), "first= is where they begin"  # type: ignore[union-attr]


def test_stopping_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: list[str]) -> None:
    console = recording()
    monkeypatch.setattr(ablating, "carry_out", lambda pending, out, jobs: iter([(pending[0], False)]))
    assert not ablate(asked(tmp_path, "table6"), console=console)
    assert "The same command goes on" in said(console)
