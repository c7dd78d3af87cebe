"""Nothing is deleted, nothing is mixed: who may write to a run folder, and what becomes of what was there."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import RECIPE

from flexpredict import pretrain
from flexpredict.cli import main
from flexpredict.errors import UserError
from flexpredict.files import write_json_atomically
from flexpredict.runs.claim import Claim
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training import loop

SHORT = {**RECIPE, "epochs": 1 / 6}


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that writes to tmp_path/run."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from flexpredict.runs.claim import Claim; from flexpredict.runs.run_folder import RunFolder\n"
        "Claim(RunFolder(Path(sys.argv[1]))).take(); print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_process_writes_and_its_lock_ends_with_it(other_process: "subprocess.Popen[str]", tmp_path: Path) -> None:
    second = Claim(RunFolder(tmp_path / "run"))
    with pytest.raises(UserError, match=rf"written to by another process \(process {other_process.pid} on "):
        second.take()
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    second.take()
    with pytest.raises(UserError, match="This process is already writing"):
        Claim(RunFolder(tmp_path / "run")).take()
    second.release()
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_study_or_demo_that_another_process_is_at_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "arm.log").write_text("words of a run")
    write_json_atomically(tmp_path / "demo.json", {})
    code = (
        "import sys, time; from pathlib import Path; from flexpredict.runs.claim import only_writer\n"
        "with only_writer(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    asked = ["lr", "--data", "scenes:64,size=32", "--test", "scenes:40,size=32,split=test", "--labels", "1.0"]
    small = ["--model", "vit_tiny_patch16_224", "--image_size", "32", "--patch_size", "4", "--epochs", "1"]
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        for command in (["ablate", *asked, *small], ["demo", "--overwrite"]):
            words = io.StringIO()
            with contextlib.redirect_stderr(words):
                assert main([*command, "--out", str(tmp_path)]) == 2
            assert f"being written to by another process (process {other.pid} on" in words.getvalue()
        other.kill()
    assert (tmp_path / "logs" / "arm.log").read_text() == "words of a run"
    assert not tmp_path.with_name(f"{tmp_path.name}.1").exists()


def test_processes_that_read_images_do_not_keep_the_lock(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    read, write = os.pipe()
    holder = os.fork()
    if holder == 0:
        Claim(folder).take()
        worker = os.fork()
        if worker == 0:  # which outlives it
            signal.pause()
        os.write(write, worker.to_bytes(4, "little"))
        os._exit(0)
    os.waitpid(holder, 0)
    worker = int.from_bytes(os.read(read, 4), "little")
    try:
        claim = Claim(folder)
        claim.take()
        claim.release()
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("given", [{"resume": True}, {"overwrite": True}])
def test_a_run_that_is_going_on_is_neither_resumed_nor_replaced(
    given: dict[str, bool], pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, tried = loop.save_checkpoint, []

    def try_again(*arguments: Any) -> None:
        original(*arguments)
        with pytest.raises(UserError, match="already writing"):
            pretrain(pictures, tmp_path / "run", **SHORT, **given)
        tried.append(given)

    monkeypatch.setattr(loop, "save_checkpoint", try_again)
    assert pretrain(pictures, tmp_path / "run", **SHORT).finished and tried


def test_what_is_replaced_is_moved_aside_whole(pictures: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(pictures, run, **SHORT)
    (run / "notes.txt").write_text("do not lose this")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    pretrain(pictures, run, **SHORT, seed=4, overwrite=True)
    aside = tmp_path / "run.1"
    assert {path.name: path.read_bytes() for path in aside.iterdir() if path.is_file()} | {".flexpredict": b""} == (
        before | {".flexpredict": b""}
    )
    assert not (run / "notes.txt").exists()
    assert yaml.safe_load((run / "config.yaml").read_text())["seed"] == 4
    pretrain(pictures, run, **SHORT, overwrite=True)
    assert (tmp_path / "run.2").is_dir() and (aside / "notes.txt").exists()


@pytest.mark.parametrize("wrong", [{"optimizer": {"lr": -1.0}}, {"model": "no_such_model"}, {"probe_every": 1}])
def test_a_start_that_fails_changes_nothing(wrong: dict[str, Any], pictures: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(UserError):
        pretrain(pictures, run, **{**SHORT, **wrong})
    assert not run.exists()
    pretrain(pictures, run, **SHORT)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(UserError):
        pretrain(pictures, run, **{**SHORT, **wrong}, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_run_that_fails_at_its_first_step_leaves_what_was_there(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    pretrain(pictures, run, **SHORT)
    before = (run / "encoder.safetensors").read_bytes()

    def out_of_memory(*arguments: Any) -> None:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(loop, "_masks_and_noise", out_of_memory)
    with pytest.raises(RuntimeError):
        pretrain(pictures, run, **SHORT, seed=4, overwrite=True)
    assert (run / "encoder.safetensors").read_bytes() == before and not (tmp_path / "run.1").exists()
    with pytest.raises(RuntimeError):
        pretrain(pictures, tmp_path / "new", **SHORT)
    assert not (tmp_path / "new").exists()


def test_a_folder_with_some_config_is_no_run(pictures: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "config.yaml").write_text("name: my project\n")
    with pytest.raises(UserError, match="not a run folder"):
        pretrain(pictures, project, **SHORT, overwrite=True)
    assert (project / "src").is_dir()


def test_resume_and_overwrite_exclude_each_other(finished: Path) -> None:
    with pytest.raises(UserError, match="Give one of them"):
        pretrain(out=finished, resume=True, overwrite=True)


def test_the_first_record_of_a_run_stays_and_later_starts_are_added(pictures: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(pictures, run, **SHORT)
    first = (run / "environment.json").read_bytes()
    pretrain(out=run, resume=True)
    assert (run / "environment.json").read_bytes() == first
    starts = [json.loads(line) for line in (run / "starts.jsonl").read_text().splitlines()]
    assert [start["step"] for start in starts] == [0, 1] and "command" in starts[1]


def test_a_folder_that_cannot_be_written_to_is_refused_in_words(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return opened(path, flags, *mode)

    opened = os.open
    monkeypatch.setattr("flexpredict.runs.claim.os.open", read_only)
    with pytest.raises(UserError, match=r"cannot be made or written to: Read-only file system\. Name another"):
        pretrain(out=finished, resume=True)
    with pytest.raises(UserError, match="cannot be made or written to"):
        pretrain("scenes:8,size=32", "/proc/run", **SHORT)
