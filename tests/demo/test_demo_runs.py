"""Runs of the demo that go wrong, and runs that went wrong before."""

import dataclasses
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tiny_demo import PROTOCOL, RECIPE

from flexpredict.commands import ablate_task
from flexpredict.demo import recipe, running
from flexpredict.demo.running import plan_runs
from flexpredict.errors import UserError
from flexpredict.progress import Counting
from flexpredict.studies.ablations import ablating, processes
from flexpredict.studies.ablations.ablating import carry_out_runs
from flexpredict.studies.ablations.processes import Task
from flexpredict.studies.ablations.runs import StudyRun, task_of
from flexpredict.training.signals import Stop

pytestmark = pytest.mark.usefixtures("few_penalties")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, StudyRun]:
    for name, value in RECIPE.items():
        monkeypatch.setitem(recipe.RECIPE, name, value)
    return {row: own[0] for row, own in plan_runs(tmp_path, 2, [3], PROTOCOL).items()}


def test_what_a_process_refuses_is_said_with_the_name_of_the_run_and_nothing_is_measured(
    runs: dict[str, StudyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(task: Task, slot: int, at_a_time: int) -> SimpleNamespace:
        """What Python does with an error text that a program exits with."""
        monkeypatch.setattr("sys.argv", ["ablate_task", str(task.save()), str(os.getpid())])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ablate_task.__file__), run_name="__main__")
        task.log.write_text(str(ended.value))
        return SimpleNamespace(poll=lambda: 1)

    monkeypatch.setattr(processes, "begin", begin)
    monkeypatch.setattr(processes, "end_with", lambda parent: None)
    task = task_of([runs["StoP"]], tmp_path)
    (run,) = task.runs
    broken = dataclasses.replace(task, runs=(dataclasses.replace(run, recipe={**run.recipe, "patch_size": 7}),))
    with pytest.raises(UserError, match=r"StoP-seed=3 failed.*patch"):
        carry_out_runs(Console(quiet=True), [runs["StoP"]], [broken], 1, Stop())
    assert not runs["StoP"].done


def test_a_run_that_was_killed_before_it_had_a_recipe_is_begun_again(
    runs: dict[str, StudyRun], tmp_path: Path
) -> None:
    run, untrained = runs["sin-cos"], runs["untrained"]
    (run.folder / "checkpoints").mkdir(parents=True)
    (run.folder / ".config.yaml.1234.tmp").touch()
    assert ablate_task.carry_out(task_of([run, untrained], tmp_path)) == 0
    assert run.done and untrained.done and (run.folder / "report.html").is_file()
    assert run.logged_step() == run.steps == 2
    # Before training, both are the same encoder.
    assert run.numbers() != untrained.numbers()


def test_what_is_measured_is_named_whether_it_was_trained_or_not(
    runs: dict[str, StudyRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, untrained, notes = runs["sin-cos"], runs["untrained"], []
    monkeypatch.setattr(Counting, "add", lambda self, count, note="": notes.append(note))
    states = [(0, True), (2, True), (2, False)]  # steps that are logged, and whether the trained one is unmeasured

    def carry_out(tasks: Any, at_a_time: int, stop: Stop, look: Any) -> Iterator[Any]:
        for step, unmeasured in states:
            monkeypatch.setattr(StudyRun, "logged_step", lambda self, step=step: step)
            of_trained = {run.name: unmeasured, untrained.name: True}
            monkeypatch.setattr(StudyRun, "unmeasured", property(lambda self, now=of_trained: now[self.name]))
            look(tasks)
        yield tasks[0], True

    monkeypatch.setattr(ablating, "carry_out", carry_out)
    assert carry_out_runs(Console(quiet=True), [run, untrained], [task_of([run, untrained], tmp_path)], 1, Stop())
    assert notes == ["training", "measuring sin-cos-seed=3", "measuring untrained-seed=3"]


def pretend(carry_out: Any, passed: list[float], done: set[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take the seconds that `carry_out` adds to `passed`, and leave nothing behind."""
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    monkeypatch.setattr(running, "_carry_out", carry_out)
    monkeypatch.setattr(running, "print_comparison", lambda *_: None)
    monkeypatch.setattr(running, "Comparison", lambda numbers: SimpleNamespace(describe=dict))
    monkeypatch.setattr(StudyRun, "done", property(lambda run: run.folder in done))
    monkeypatch.setattr(StudyRun, "numbers", lambda run: {})


@pytest.mark.parametrize(
    ("seconds", "machine", "seeds"),
    [
        (70.0, 2, [0, 1, 2, 3, 4]),
        (100.0, 2, [0, 1, 2]),  # two runs at a time
        (100.0, 1, [0, 1, 2]),  # one at a time; the first seed already took two of them
        (100.0, 3, [0, 1, 2, 3]),  # three runs at a time after the two of the first seed
        (170.0, 8, [0, 1, 2, 3, 4]),
        (200.0, 2, [0]),
        (400.0, 8, [0]),
    ],
)
def test_there_are_as_many_seeds_as_end_in_time(
    seconds: float, machine: int, seeds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: set[Path] = set()
    passed = [0.0]
    one_round = seconds / (2 if machine == 1 else 1)

    def carry_out(console: Any, runs: dict[str, list[StudyRun]], out: Path) -> None:
        left = [run for arm in ("sin-cos", "StoP") for run in runs[arm] if run.folder not in done]
        passed[0] += one_round * -(-len(left) // machine)
        done.update(run.folder for own in runs.values() for run in own)

    monkeypatch.setattr(running, "cores", lambda: machine)
    pretend(carry_out, passed, done, monkeypatch)
    for _ in range(2):  # the second time nothing is left to do
        console = Console(record=True, quiet=False, width=200)
        saved = running.run_demo(
            tmp_path / "demo", steps=10, seeds=range(5), minutes=6, protocol=PROTOCOL, console=console
        )
        assert saved["seeds"] == seeds
    assert passed[0] <= 360 or seeds == [0]
    assert "This demo is finished" in console.export_text()
    other = running.run_demo(tmp_path / "demo", steps=10, seeds=(5, 6), minutes=6, protocol=PROTOCOL, console=console)
    assert other["seeds"][0] == 5, "not those that are there"


@pytest.mark.parametrize("interrupted_at", [1, 2])
def test_a_demo_that_was_interrupted_has_time_for_as_many_seeds_as_one_that_was_not(
    interrupted_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed takes 100 seconds; it is interrupted after 99 of them, or the other seeds are."""
    passed, done, calls = [0.0], set[Path](), 0

    def carry_out(console: Any, runs: dict[str, list[StudyRun]], out: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == interrupted_at:
            passed[0] += 99
            raise KeyboardInterrupt
        passed[0] += 1 if calls == interrupted_at + 1 else 100
        done.update(run.folder for own in runs.values() for run in own)

    monkeypatch.setattr(running, "cores", lambda: 2)
    pretend(carry_out, passed, done, monkeypatch)

    def begin() -> dict[str, Any]:
        return running.run_demo(
            tmp_path, steps=10, seeds=range(5), minutes=6, protocol=PROTOCOL, console=Console(quiet=True)
        )

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert begin()["seeds"] == [0, 1, 2]
