"""What goes wrong around a run: it ends with a message, and goes on afterwards as if nothing had happened."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA
from flexpredict.runs.metrics import read_records


def assert_same_weights(first: Path, second: Path) -> None:
    ours, theirs = (load_file(run / "checkpoints" / "last" / "model.safetensors") for run in (first, second))
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def at_step(number: int, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = 0, IJEPA.after_step

    def after_step(self: IJEPA, momentum: float) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == number:
            act()
        return original(self, momentum)

    monkeypatch.setattr(IJEPA, "after_step", after_step)


def test_images_that_disappear_end_the_run_which_goes_on_when_they_are_back(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    with monkeypatch.context() as patch:
        at_step(4, lambda: pictures.rename(tmp_path / "gone"), patch)
        with pytest.raises(UserError, match="could not be read"):
            pretrain(str(pictures), tmp_path / "run", **RECIPE)
    (tmp_path / "gone").rename(pictures)
    assert pretrain(out=tmp_path / "run", resume=True).finished
    assert_same_weights(tmp_path / "run", finished)
    assert read_records(tmp_path / "run" / "skipped.jsonl") == []


_KILLED_READER = """
import multiprocessing, os, signal, sys
from tiny import RECIPE
from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA

steps, original = [], IJEPA.after_step

def after_step(self, momentum):
    steps.append(momentum)
    if len(steps) == 4:
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)
    return original(self, momentum)

IJEPA.after_step = after_step
try:
    pretrain(sys.argv[1], sys.argv[2], **RECIPE, workers=1)
except UserError as error:
    print(error)
"""


def test_a_reading_process_that_is_killed_ends_the_run_which_then_goes_on(
    finished: Path, pictures: str, tmp_path: Path
) -> None:
    """As the kernel does when memory runs out. In a process of its own, where torch's signal handler does no harm."""
    command = [sys.executable, "-c", _KILLED_READER, pictures, str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=300)
    assert "A process that reads images died" in ended.stdout and "fewer workers" in ended.stdout, ended.stderr
    assert pretrain(out=tmp_path / "run", resume=True, workers=0).finished
    assert_same_weights(tmp_path / "run", finished)


@pytest.mark.parametrize("name", ["metrics.jsonl", ".report.html"])
def test_a_disk_that_is_full_for_the_log_or_the_report_is_said_and_nothing_is_lost(
    name: str, finished: Path, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, calls = Path.open, 0

    def full(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        nonlocal calls
        if self.name.startswith(name) and mode in ("a", "w"):
            calls += 1
            if calls == 4:
                raise OSError(28, "No space left on device")
        return opened(self, mode, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(UserError, match=rf"No room left on the disk while writing .*{name.strip('.')}"):
            pretrain(pictures, tmp_path / "run", **RECIPE)
    assert pretrain(out=tmp_path / "run", resume=True).finished
    assert_same_weights(tmp_path / "run", finished)


def test_a_clock_that_goes_backwards_does_not_matter(
    finished: Path, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(2_000_000_000, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: next(now))
    assert pretrain(pictures, tmp_path / "run", **RECIPE).finished
    assert_same_weights(tmp_path / "run", finished)
