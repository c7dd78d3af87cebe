"""Processes of runs: they stop together, never outlive their parent, and cost what was estimated."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_study import asked, recording

from flexpredict.cli import main
from flexpredict.errors import UserError
from flexpredict.studies.ablations import ablating, costs, processes
from flexpredict.studies.ablations.costs import Costs, find_costs, in_words
from flexpredict.studies.ablations.planning import make_agenda
from flexpredict.studies.ablations.processes import INTERRUPTED, Task, TaskRun, carry_out
from flexpredict.training.signals import Stop, stop_on_signal


def tasks(tmp_path: Path, count: int) -> list[Task]:
    (tmp_path / "logs").mkdir(exist_ok=True)
    return [
        Task(tmp_path / "logs" / f"{number}.log", (TaskRun(f"run {number}", {}),), "scenes")
        for number in range(count)
    ]


class Fake:
    """A process that ends when told."""

    def __init__(self, code: int | None) -> None:
        self.code, self.asked_to_leave = code, False

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.asked_to_leave, self.code = True, self.code or -signal.SIGTERM


@pytest.mark.parametrize("code", [INTERRUPTED, -signal.SIGTERM, 1])
def test_when_a_run_is_stopped_or_fails_the_others_are_asked_to_leave_and_none_is_begun(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Fake] = []

    def begin(task: Task, slot: int, at_a_time: int) -> Fake:
        begun.append(Fake(code if len(begun) == 1 else None))
        task.log.write_text("no space left")
        return begun[-1]

    monkeypatch.setattr(processes, "begin", begin)
    if code == 1:
        with pytest.raises(UserError, match="no space left"):
            list(carry_out(tasks(tmp_path, 4), 2, Stop()))
    else:
        assert [finished for _, finished in carry_out(tasks(tmp_path, 4), 2, Stop())] == [False]
    assert len(begun) == 2 and begun[0].asked_to_leave


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_runs_that_end_together_leave_places_that_no_run_waits_for(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "begin", lambda task, slot, at_a_time: Fake(0))
    asked = tasks(tmp_path, count)
    assert list(carry_out(asked, 2, Stop())) == [(task, True) for task in asked]


_SAVES = """
import signal, sys, time
def save(number, frame):
    open(sys.argv[1], "w").write("saved")
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
open(sys.argv[1] + ".ready", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_lets_its_children_save_and_leave(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def begin(task: Task, slot: int, at_a_time: int) -> "subprocess.Popen[bytes]":
        path = str(tmp_path / f"{slot}")
        children.append(subprocess.Popen([sys.executable, "-S", "-c", _SAVES, path], start_new_session=True))
        return children[-1]

    def interrupt() -> None:
        _wait_for(lambda: all((tmp_path / f"{slot}.ready").exists() for slot in (0, 1)))
        os.kill(os.getpid(), number)

    monkeypatch.setattr(processes, "begin", begin)
    threading.Thread(target=interrupt, daemon=True).start()
    with stop_on_signal() as stop:
        assert list(carry_out(tasks(tmp_path, 5), 2, stop)) == []
    assert stop.requested and [child.poll() for child in children] == [130, 130]
    assert [(tmp_path / f"{slot}").read_text() for slot in (0, 1)] == ["saved", "saved"]


_SAVES_AND_GOES_ON = """
import signal, sys, time
def save(number, frame):
    open(sys.argv[1], "w").write("saved")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGTERM, save)
open(sys.argv[1] + ".ready", "w").close()
for _ in range(6000): time.sleep(0.1)
"""


def test_a_child_that_saves_and_then_goes_on_to_measure_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stop = tmp_path / "child", Stop()
    child = subprocess.Popen([sys.executable, "-S", "-c", _SAVES_AND_GOES_ON, str(path)])

    def request(going: list[Task]) -> None:
        if Path(f"{path}.ready").exists():
            stop.number = signal.SIGTERM

    monkeypatch.setattr(processes, "begin", lambda *given: child)
    monkeypatch.setattr(processes, "_SECONDS_BETWEEN_SIGNALS", 0.3)
    assert list(carry_out(tasks(tmp_path, 1), 1, stop, request)) == []
    assert path.read_text() == "saved" and child.poll() == -signal.SIGTERM


_CHILD = """
import os, signal, sys, time
from flexpredict.studies.ablations import processes
processes._SECONDS_BETWEEN_SIGNALS = 0.1
def stopped(number, frame):
    open(sys.argv[1] + "/stopped", "w").close()
    sys.exit(130)
signal.signal(signal.SIGTERM, stopped)
processes.end_with(int(sys.argv[2]))
open(sys.argv[1] + "/ready", "w").close()
time.sleep(600)
"""
_PARENT = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1], str(os.getpid())], start_new_session=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_study_that_was_stopped_ends_with_the_code_of_the_signal(
    number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(console: object, runs: object, tasks: object, at_a_time: int, stop: Stop) -> bool:
        stop.number = number
        return False

    monkeypatch.setattr(ablating, "carry_out_runs", stopped)
    monkeypatch.setattr(ablating, "_estimate", lambda *given: True)
    words = ["--data", "scenes:64,size=32", "--test", "scenes:40,size=32,split=test", "--labels", "1.0"]
    small = ["--model", "vit_tiny_patch16_224", "--image_size", "32", "--patch_size", "4", "--epochs", "1"]
    assert main(["ablate", "lr", *words, *small, "--out", str(tmp_path)]) == code
    said = capsys.readouterr()
    assert "what is done is kept. Run the same command again to continue." in said.out and "interrupted" in said.err


def test_a_child_whose_parent_was_killed_stops(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-S", "-c", _PARENT, str(tmp_path), _CHILD, "600"])
    try:
        _wait_for((tmp_path / "ready").exists)
    finally:
        parent.kill()
        parent.wait()
    _wait_for((tmp_path / "stopped").exists)


def test_a_child_whose_parent_ended_before_it_could_look_stops(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-S", "-c", _PARENT, str(tmp_path), _CHILD, "0"], check=True)
    _wait_for((tmp_path / "stopped").exists)


def test_a_task_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    task = Task(
        tmp_path / "logs" / "a.log",
        (
            TaskRun("runs/a", {"batch_size": 8, "data": ["a", "b"]}),
            TaskRun("runs/b", {}, "untrained", measured=False),
        ),
        ["a", "b"],
        "c,part=0-0.1",
        {"labels": [0.5]},
        nice=3,
    )
    assert Task.load(task.save()) == task


def test_runs_give_way_to_other_sessions_too() -> None:
    code = (
        "import os; from pathlib import Path; from flexpredict.studies.ablations.processes import give_way; "
        "give_way(7); group = Path('/proc/self/autogroup'); "
        "print(os.nice(0), group.read_text().split()[-1] if group.exists() else 7)"
    )
    found = subprocess.check_output([sys.executable, "-c", code], text=True, start_new_session=True)
    assert found.split() == ["7", "7"]


def test_threads_are_shared_out_unless_someone_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert processes._share(0, 4)["OMP_NUM_THREADS"] == "2" and processes._share(0, 16)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert processes._share(0, 4)["OMP_NUM_THREADS"] == "1"


def test_the_estimate_counts_steps_and_all_the_rest(tmp_path: Path) -> None:
    runs = list(make_agenda(asked(tmp_path, "l1"), recording()).work.values())
    found = {run.arm: Costs(step=1.0 + place % 3, other=10.0) for place, run in enumerate(runs)}
    # Three arms of 1, 2 and 3 s a step, two steps each, twice: 24 s and six times 10 s.
    assert in_words(runs, found, 1) == (
        "12 steps of 1000 to 3000 ms, and 10 s a run to start and to measure: about 1 min 24 s, one after another."
    )
    assert in_words(runs, found, 2).endswith("about 42 s, 2 at a time.")


def test_costs_of_finished_runs_are_known_and_only_other_arms_are_tried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list(make_agenda(asked(tmp_path, "l1"), recording()).work.values())
    tried: list[str] = []

    def begin(task: Task, slot: int, at_a_time: int) -> Fake:
        assert [run.measured for run in task.runs] == [True, False], "one is enough"
        for run in task.runs:
            tried.append(run.recipe["positions"]["kind"])
            assert run.recipe["epochs"] * 64 / run.recipe["batch_size"] == pytest.approx(12), "a few steps"
            Path(run.folder).mkdir(parents=True)
            Costs(step=5.0, other=50.0).save(Path(run.folder))
        return Fake(0)

    monkeypatch.setattr(processes, "begin", begin)
    runs[0].folder.mkdir(parents=True)
    Costs(step=1.0, other=10.0).save(runs[0].folder)
    found = find_costs(runs, tasks(tmp_path, 1)[0], Stop())
    assert found is not None and found[runs[0].arm] == Costs(1.0, 10.0)
    assert tried == ["sincos", "stochastic"] and found[runs[1].arm] == found[runs[2].arm] == Costs(5.0, 50.0)
    for run in runs[1:3]:
        run.folder.mkdir(parents=True)
        Costs(step=2.0, other=20.0).save(run.folder)
    monkeypatch.setattr(costs, "_try_out", lambda *given: pytest.fail("all is known"))
    assert find_costs(runs, tasks(tmp_path, 1)[0], Stop()) is not None


def _wait_for(true: "object", seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
