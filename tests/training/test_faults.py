"""What goes wrong around a run: it ends with a message, and goes on afterwards as if nothing had happened."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from interrupted import assert_same_weights, at_step
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.reports.writing import refresh_report
from flexpredict.runs.checkpoint import last_step
from flexpredict.runs.metrics import read_records


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "flexpredict", disk], check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here (it takes root)")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="tmpfs")
@pytest.mark.parametrize("reached", ["metrics.jsonl", "step-9", "report.html"])
def test_a_disk_that_is_full_in_mid_run_is_said_and_the_run_goes_on_when_there_is_room(
    reached: str, finished: Path, pictures: str, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has room for all that is written before the file that is reached."""

    def refresh(run: Path) -> None:
        if last_step(run / "checkpoints") == 9:
            fill(small_disk)
        refresh_report(run)

    with monkeypatch.context() as patch:
        if reached == "report.html":
            patch.setattr("flexpredict.pretraining.refresh_report", refresh)
        else:
            at_step(7, lambda: fill(small_disk, room=2 if reached == "step-9" else 0), patch)
        with pytest.raises(UserError, match=rf"No room left on the disk while writing .*{reached}"):
            pretrain(pictures, small_disk / "run", **{**RECIPE, "log_every": 1})
    assert last_step(small_disk / "run" / "checkpoints") == (9 if reached == "report.html" else 6)
    (small_disk / "filler").unlink()
    assert pretrain(out=small_disk / "run", resume=True).finished
    assert_same_weights(small_disk / "run", finished)
    assert [record["step"] for record in read_records(small_disk / "run" / "metrics.jsonl")] == list(range(1, 19))


def fill(disk: Path, room: int = 0) -> None:
    """Leave so many pages of 4 kB free."""
    free = os.statvfs(disk).f_bavail - room
    with (disk / "filler").open("wb") as file:
        file.write(bytes(4096 * free))


def test_a_clock_that_goes_backwards_does_not_matter(
    finished: Path, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(2_000_000_000, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: next(now))
    assert pretrain(pictures, tmp_path / "run", **RECIPE).finished
    assert_same_weights(tmp_path / "run", finished)
