"""`minutes`: what is measured, what is chosen from it, and that the run is none other for it."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from interrupted import weights
from tiny import RECIPE, write_pictures

from flexpredict import ablate, pretrain, pretraining
from flexpredict.commands.table import COMMANDS
from flexpredict.data.sources.opening import ArraySource
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA
from flexpredict.runs.metrics import read_records
from flexpredict.settings import scale
from flexpredict.settings.recipe import Recipe
from flexpredict.training import checkpoint_timer, loop, rehearsal, time_limit
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.rehearsal import Costs, Rehearsal
from flexpredict.training.smaller_encoder import suggest_smaller
from flexpredict.training.time_limit import most_steps, with_epochs

TIMED = {**RECIPE, "epochs": None, "checkpoint_every": 10, "log_every": 5}


@pytest.fixture(scope="module")
def labeled(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("labeled")
    for name in ("cat", "dog"):
        write_pictures(folder / name, 24)
    return str(folder)


class FakeTime:
    """A clock that only moves when something is done."""

    STEP, CHECKPOINT, PROBE = 1.0, 2.0, 3.0  # seconds

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(perf_counter=lambda: self.now, monotonic=lambda: self.now)
        for module in (rehearsal, time_limit, checkpoint_timer):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(IJEPA, "after_step", self.taking(self.STEP, IJEPA.after_step))
        monkeypatch.setattr(loop, "save_checkpoint", self.taking(self.CHECKPOINT, loop.save_checkpoint))
        monkeypatch.setattr(pretraining, "write_report", lambda names, source: None)
        monkeypatch.setattr(pretraining, "online_probe", lambda *_: self.taking(self.PROBE, lambda encoder: {}))

    def taking(self, seconds: float, function: Any) -> Any:
        def slow(*arguments: Any) -> Any:
            self.now += seconds
            return function(*arguments)

        return slow


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


def config(run: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    return loaded


def assert_same_run(first: Path, second: Path) -> None:
    ours, theirs = weights(first), weights(second)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    losses = [[record["loss"] for record in read_records(run / "metrics.jsonl")] for run in (first, second)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": None}, {"probe_every": 3, "keep_every": 2}])
def test_a_run_ends_on_time(options: dict[str, Any], labeled: str, tmp_path: Path, fake_time: FakeTime) -> None:
    """In a time of which everything is known, so that the machine that runs this test does not matter."""
    began = fake_time.now
    assert pretrain(labeled, tmp_path / "run", **{**TIMED, **options}, minutes=2).finished
    assert 0.95 * 120 <= fake_time.now - began <= 120


def test_what_is_measured_is_what_things_take(labeled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Costs] = []
    original = Rehearsal.measure

    def measure(self: Rehearsal, seconds: float) -> Costs | None:
        costs = original(self, seconds)
        assert costs is not None
        measured.append(costs)
        return costs

    monkeypatch.setattr(Rehearsal, "measure", measure)
    FakeTime(monkeypatch)
    pretrain(labeled, tmp_path / "run", **TIMED, minutes=1, probe_every=5)
    (costs,) = measured
    assert (costs.step, costs.checkpoint, costs.probe) == pytest.approx((1.0, 2.0, 3.0))
    assert costs.start == pytest.approx(0.0, abs=1e-6) and 0 <= costs.data_wait <= 1


def test_measuring_does_not_change_the_run(pictures: str, tmp_path: Path, fake_time: FakeTime) -> None:
    torch.manual_seed(1)
    pretrain(pictures, tmp_path / "timed", **TIMED, minutes=0.6)
    chosen = config(tmp_path / "timed")
    assert chosen["minutes"] is None and 2 < chosen["epochs"] < 6
    torch.manual_seed(2)
    pretrain(pictures, tmp_path / "plain", **{**TIMED, "epochs": chosen["epochs"]})
    assert_same_run(tmp_path / "timed", tmp_path / "plain")
    assert config(tmp_path / "plain") == chosen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "timed"], "nothing is left of the rehearsal"


def test_a_resumed_run_keeps_its_length_and_is_not_measured_again(
    pictures: str,
    tmp_path: Path,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretrain(pictures, tmp_path / "whole", **TIMED, minutes=0.6)
    steps, original = 0, IJEPA.after_step

    def interrupt(self: IJEPA, momentum: float) -> dict[str, float]:
        nonlocal steps
        steps += 1
        if steps == 16:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, momentum)

    with monkeypatch.context() as patched:
        patched.setattr(IJEPA, "after_step", interrupt)
        outcome = pretrain(pictures, tmp_path / "stopped", **TIMED, minutes=0.6)
    assert not outcome.finished and 0 < outcome.steps < 16, "some of the sixteen were a rehearsal"
    monkeypatch.setattr(Rehearsal, "measure", lambda *_: pytest.fail("it was measured again"))
    capsys.readouterr()
    assert pretrain(out=tmp_path / "stopped", resume=True, minutes=30).finished
    assert "minutes is not used" in capsys.readouterr().out
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_length_that_asks_for_other_defaults_is_measured_with_them(
    pictures: str, tmp_path: Path, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual length of this run is a large one, and two minutes make it small."""
    monkeypatch.setattr(scale, "SMALL_RUN", 10_000)
    left_open = {name: value for name, value in TIMED.items() if name != "scale"}
    assert pretrain(pictures, tmp_path / "run", **left_open, minutes=2).finished
    fitted = config(tmp_path / "run")
    assert (fitted["scale"], fitted["optimizer"]["kind"]) == ("small", "muon")
    assert "standardization.count" in weights(tmp_path / "run")
    del fitted["data"]
    pretrain(pictures, tmp_path / "same", **fitted)
    assert_same_run(tmp_path / "run", tmp_path / "same")


def test_stopped_while_measuring_it_leaves_nothing_behind(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: IJEPA, momentum: float) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    monkeypatch.setattr(IJEPA, "after_step", interrupt)
    outcome = pretrain(pictures, tmp_path / "run", **TIMED, minutes=1)
    assert (outcome.steps, outcome.finished) == (0, False)
    assert "nothing was started" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_and_a_bad_number_are_refused_before_anything_is_measured(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rehearsal, "measure", lambda *_: pytest.fail("it was measured"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}")
    (tmp_path / "run" / ".flexpredict").touch()
    with pytest.raises(UserError, match="already holds a run"):
        pretrain(pictures, tmp_path / "run", **TIMED, minutes=1)
    for minutes in (0, -3, float("inf"), float("nan")):
        with pytest.raises(UserError, match=r"minutes=.* must be more than 0"):
            pretrain(pictures, tmp_path / "new", **TIMED, minutes=minutes)
    assert not (tmp_path / "new").exists()


def test_less_time_than_a_step_takes_is_refused(pictures: str, tmp_path: Path, fake_time: FakeTime) -> None:
    with pytest.raises(UserError, match=r"minutes=0\.05 is too short.*Give at least 1 minutes"):
        pretrain(pictures, tmp_path / "run", **TIMED, minutes=0.05)
    assert list(tmp_path.iterdir()) == []


def plan_of(recipe: Recipe, samples: int = 3000) -> Plan:
    image = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    source = ArraySource("images", image.expand(samples, -1, -1, -1))
    return make_plan(recipe, source, torch.device("cpu"), world_size=1)


@pytest.mark.parametrize("seconds", [100, 1_234, 56_789])
@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 7}, {"keep_every": 1.5, "probe_every": 2}])
def test_the_number_of_steps_is_the_largest_that_the_time_allows(options: dict[str, Any], seconds: float) -> None:
    """Against a run that is walked through step by step."""
    recipe = make_recipe({**TIMED, "checkpoint_every": None, "minutes": 1, **options})
    costs = Costs(start=2.0, step=0.4, checkpoint=1.5, probe=6.0, data_wait=0.1)
    steps = most_steps(recipe, plan_of(recipe), costs, seconds)
    plan = plan_of(with_epochs(recipe, steps * 8 / 3000))
    checkpoints = sum(plan.checkpoint_due(step) for step in range(1, plan.steps + 1))
    if recipe.checkpoint_every is None:
        checkpoints += int(0.4 * plan.steps / 120)
    probes = sum(plan.probe_due(step) for step in range(1, plan.steps + 1))
    spent = 2.0 + 0.4 * plan.steps + 1.5 * checkpoints + 6.0 * probes
    assert spent <= seconds + 0.4
    assert spent > 0.999 * seconds - 0.4 - 1.5 - 6.0, "what is left is too short for another event of each kind"


@pytest.mark.parametrize("epochs", [0.012345, 0.99999, 3.0, 37.1896, 123456.7])
def test_epochs_are_rounded_down_to_four_digits(epochs: float) -> None:
    rounded = with_epochs(Recipe(minutes=1), epochs).epochs
    assert rounded is not None and 0.999 * epochs <= rounded <= epochs and len(f"{rounded:.10g}".strip("0.")) <= 7


def test_what_a_recipe_gives_for_its_own_epochs_is_scaled() -> None:
    recipe = make_recipe({"epochs": 300, "minutes": 5, "optimizer": {"warmup_epochs": 40, "hold_from_epoch": 250}})
    fitted = with_epochs(recipe, 30.0)
    assert (fitted.epochs, fitted.minutes) == (30.0, None)
    assert fitted.optimizer.warmup_epochs == pytest.approx(4) and fitted.optimizer.hold_from_epoch == pytest.approx(
        25
    )
    alone = with_epochs(replace(recipe, epochs=None), 100.0)
    assert alone.optimizer.warmup_epochs == 40, "without epochs to which it belongs, it is what was asked for"


def recipe_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Recipe:
    """The recipe that a command line comes to."""
    recipes: list[Recipe] = []

    def run(recipe: Recipe, *_: Any, **options: Any) -> SimpleNamespace:
        recipes.append(recipe)
        return SimpleNamespace(steps=1, finished=True, signal=None)

    monkeypatch.setattr(pretraining, "run", run)
    assert pretrain(**COMMANDS["pretrain"].arguments(["--data", "scenes", *arguments])).finished
    return recipes[0]


def test_what_is_given_beside_a_recipe_file_says_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs, minutes, both = tmp_path / "epochs.yaml", tmp_path / "minutes.yaml", tmp_path / "both.yaml"
    epochs.write_text("epochs: 50\n")
    minutes.write_text("minutes: 20\n")
    both.write_text("epochs: 50\nminutes: 20\n")

    def length(*arguments: str) -> tuple[float | None, float | None]:
        recipe = recipe_of(monkeypatch, *arguments)
        return recipe.epochs, recipe.minutes

    assert length("--minutes", "20") == (None, 20)
    assert length("--config", str(epochs), "--minutes=20") == (50, 20), "the epochs are what its warm-up belongs to"
    assert length("--config", str(minutes), "--epochs", "3") == (3, None)
    for arguments in (["--minutes", "20", "--epochs=3"], ["--config", str(both)]):
        with pytest.raises(UserError, match=r"minutes=20 and epochs=\d+ both say how long the run is"):
            length(*arguments)
    with pytest.raises(UserError, match="both say how long"):
        pretrain("scenes", tmp_path / "run", minutes=20, epochs=3)


def test_arms_of_an_ablation_have_one_length() -> None:
    with pytest.raises(UserError, match=r"minutes=5.*epochs="):
        ablate("table6", data="scenes", minutes=5)


def test_too_little_time_names_a_smaller_encoder(
    pictures: str, tmp_path: Path, fake_time: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    larger = {"model_options": {"embed_dim": 192, "depth": 6, "num_heads": 3}, "predictor": {}}
    pretrain(pictures, tmp_path / "short", **{**TIMED, **larger}, minutes=0.3)
    said = " ".join(capsys.readouterr().out.split())
    assert "0.3 minutes allow" in said and "one takes 1,000 ms (measured)" in said
    assert "0.3 minutes are short for this encoder" in said
    assert """model_options={"embed_dim": 96, "depth": 4, "num_heads": 3}""" in said


def test_enough_time_gives_no_advice(
    pictures: str,
    tmp_path: Path,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(time_limit, "ENOUGH_IMAGES", 24)
    monkeypatch.setattr(time_limit, "ENOUGH_STEPS", 3)
    pretrain(pictures, tmp_path / "run", **TIMED, minutes=0.3)
    assert "short for this encoder" not in capsys.readouterr().out


def test_an_encoder_that_has_learned_already_needs_no_hundred_thousand_images(
    pictures: str, finished: Path, tmp_path: Path, fake_time: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(pictures, tmp_path / "continued", **TIMED, minutes=0.3, init_from=str(finished))
    assert "0.3 minutes allow" in (said := capsys.readouterr().out) and "short for this encoder" not in said


def test_the_largest_encoder_that_is_fast_enough_is_suggested() -> None:
    recipe = make_recipe({"model": "vit_small_patch16_224", "image_size": 64, "patch_size": 8})
    plan = plan_of(recipe)
    twice, five, most = (suggest_smaller(recipe, plan, 0.0, speed, plan_of) for speed in (1.9, 5.0, 1e9))
    assert twice and five and most
    assert twice.model_options == {"depth": 6} and twice.speed >= 1.9
    assert five.model_options == {"embed_dim": 192, "depth": 4, "num_heads": 6} and five.speed >= 5
    assert most.model_options == {"embed_dim": 96, "depth": 4, "num_heads": 3}, "there is none smaller"
    waiting = suggest_smaller(recipe, plan, 0.5, 1e9, plan_of)
    assert waiting and waiting.speed < 2, "a smaller encoder does not make images come sooner"
    tiny = make_recipe({**TIMED, "model_options": {"embed_dim": 24, "depth": 2, "num_heads": 2}})
    assert suggest_smaller(tiny, plan_of(tiny), 0.0, 2.0, plan_of) is None


def test_a_real_step_is_measured(pictures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a real clock, and a step that mostly sleeps: what else the machine does matters little."""
    original = IJEPA.after_step

    def slow(self: IJEPA, momentum: float) -> dict[str, float]:
        time.sleep(0.1)
        return original(self, momentum)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(IJEPA, "after_step", slow)
        pretrain(pictures, tmp_path / "run", **TIMED, minutes=0.1)
    (measured,) = [line for line in capsys.readouterr().out.splitlines() if "(measured)" in line]
    milliseconds = int(measured.split("one takes ")[1].split(" ms")[0].replace(",", ""))
    assert 100 <= milliseconds < 1500
