"""The demo as people meet it: it runs to its end, or is stopped and goes on as if it had not been."""

import io
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tiny_demo import demo

from flexpredict import cli
from flexpredict.demo import running

STEPS = 300
COMMAND = [sys.executable, str(Path(__file__).parent.parent / "tiny_demo.py"), f"--steps={STEPS}"]
TABLE = "class, all labels"
PATIENCE = 300.0  # seconds, on a busy machine


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that nobody stopped; what it printed is in its parent."""
    out = tmp_path_factory.mktemp("finished") / "demo"
    with redirect_stdout(io.StringIO()) as printed:
        assert demo(f"--steps={STEPS}", f"--out={out}") == 0
    (out.parent / "stdout").write_text(printed.getvalue())
    return out


def test_the_demo_prints_a_table_and_saves_it_with_all_that_it_depends_on(finished_demo: Path) -> None:
    printed = (finished_demo.parent / "stdout").read_text()
    for word in ("raw pixels", "untrained", "sin-cos", "StoP", "location share", "1/2 patch", "One seed"):
        assert word in printed
    saved = read(finished_demo / "results.json")
    assert saved["percent"].keys() == {"raw pixels", "untrained", "sin-cos", "StoP"}
    assert saved["seeds"] == [0] and saved["steps"] == STEPS and saved["protocol"]["train"] == 1200
    assert saved["recipe"]["batch_size"] == 8 and saved["software"]["torch"]
    for arm in ("sin-cos", "StoP"):
        run = finished_demo / "runs" / f"{arm}-seed=0"
        assert (run / "encoder.safetensors").is_file() and str(run / "report.html") in printed
        assert (run / "report.html").is_file()
    assert "2 runs side by side" in (finished_demo / "report.html").read_text()
    # Arms differ in nothing but their positions, and each was trained.
    numbers = saved["by_seed"]
    assert len({json.dumps(numbers[row]) for row in numbers}) == 4


def test_a_demo_that_is_done_is_shown_again_and_not_done_again(
    finished_demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished_demo / "results.json").read_bytes()
    assert demo(f"--steps={STEPS}", f"--out={finished_demo}") == 0
    shown = capsys.readouterr().out
    assert "This demo is finished" in shown and "--overwrite" in shown
    table = shown[shown.index(TABLE) : shown.index("Results:")]
    assert table in (finished_demo.parent / "stdout").read_text()
    assert (finished_demo / "results.json").read_bytes() == before


def test_a_demo_that_is_stopped_three_times_ends_as_if_nobody_had_stopped_it(
    finished_demo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "demo"
    logs = [out / "runs" / f"{arm}-seed=0" / "metrics.jsonl" for arm in ("sin-cos", "StoP")]

    def steps_of_both() -> list[int]:
        return [len(log.read_text().splitlines()) if log.is_file() else 0 for log in logs]

    def both_train_on() -> Callable[[], bool]:
        before = steps_of_both()
        return lambda: all(now >= then + 10 for now, then in zip(steps_of_both(), before, strict=True))

    # Killed, it can say and do nothing; its processes notice and stop.
    assert stop(out, signal.SIGKILL, when=both_train_on()) == (-signal.SIGKILL, "", "")
    saved = [log.parent / "report.html" for log in logs]  # is written last
    wait_for(lambda: all(path.is_file() for path in saved))

    code, printed, complaints = stop(out, signal.SIGTERM, when=both_train_on())
    assert code == 143
    assert "Continuing" in printed and "StoP-seed=0 continues from its last checkpoint" in printed
    assert "Run the same command again to continue" in complaints and "Traceback" not in complaints
    steps = [read(log.parent / "checkpoints" / "last" / "state.json")["step"] for log in logs]
    assert all(20 <= step < STEPS for step in steps)
    # Half-trained encoders are not measured, and there is no table.
    assert not list(out.glob("runs/*/measured.json")) and not (out / "results.json").exists()
    assert TABLE not in printed

    measured = [log.parent / "measured.json" for log in logs]
    code, printed, complaints = stop(out, signal.SIGINT, when=lambda: any(path.is_file() for path in measured))
    assert code == 130
    assert "Run the same command again to continue" in complaints and "Traceback" not in complaints
    assert not (out / "results.json").exists() and TABLE not in printed
    kept = {path: path.stat().st_mtime_ns for path in measured if path.is_file()}

    process = start(out)
    printed = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0
    assert "Continuing: " in printed and "of 4 parts are done" in printed
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    ours, theirs = read(out / "results.json"), read(finished_demo / "results.json")
    assert ours["by_seed"] == theirs["by_seed"] and ours["stop_minus_sincos"] == theirs["stop_minus_sincos"]


def test_a_demo_with_other_settings_starts_over_says_so_and_keeps_the_earlier_one(
    finished_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "demo"
    shutil.copytree(finished_demo, out, symlinks=True)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_carry_out", interrupted)
    assert demo("--steps=3", f"--out={out}") == 130
    first = capsys.readouterr().out
    assert f"Starting over, because the demo in {out} was started with steps={STEPS} (now 3)." in first
    assert f"The earlier demo is kept in {tmp_path / 'demo.1'}" in first
    assert (tmp_path / "demo.1" / "results.json").is_file() and not (out / "results.json").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--steps", "0"], "steps 0"),
        (["--steps", "-5"], "steps -5"),
        (["--seeds", "0"], "seeds 0"),
    ],
)
def test_impossible_numbers_are_refused_before_anything_is_made(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), *options]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert cli.main(["demo", "--out", str(tmp_path), "--overwrite"]) == 2
    assert "has files that are not of a demo" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def start(out: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([*COMMAND, f"--out={out}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stop(out: Path, number: signal.Signals, when: Callable[[], bool]) -> tuple[int, str, str]:
    """Start the demo and send it a signal; its code, what it printed, and what it complained of."""
    process = start(out)
    wait_for(lambda: when() or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(number)
    printed, complaints = process.communicate(timeout=PATIENCE)
    # A killed one could not print how far it was in time.
    return process.returncode, "" if number == signal.SIGKILL else printed, complaints


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def read(path: Path) -> Any:
    return json.loads(path.read_text())
