"""A run that is killed again and again, so that nothing can be tidied up: it ends as one that nobody killed."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from interrupted import assert_same_weights
from ranks import warm_processes
from safetensors.torch import load_file
from tiny import RECIPE

from flexpredict import pretrain
from flexpredict.runs.metrics import read_records

KILLS = 50
LONG = {**RECIPE, "epochs": 8, "checkpoint_every": 1}  # 48 steps; a checkpoint at each, so that most kills meet one
CHANGES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.truncate", "shutil.rmtree")


def one_life(out: str, fields: dict[str, Any], changes: int | None, delay: float) -> None:
    """Train until so many files of the run were touched (None: to the end), and some milliseconds more."""
    torch.set_num_threads(1)
    left = changes

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if left is None or event not in CHANGES or not str(arguments[0]).startswith(out):
            return
        left -= 1
        if left == 0:
            if not delay:
                os.kill(os.getpid(), signal.SIGKILL)
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

    sys.addaudithook(count)
    pretrain(out=out, **fields)


def live(out: Path, fields: dict[str, Any], changes: int | None = None, delay: float = 0.0) -> int | None:
    process = warm_processes().Process(target=one_life, args=(str(out), fields, changes, delay))
    process.start()
    process.join()
    return process.exitcode


def assert_every_file_is_whole(run: Path) -> None:
    """But those under temporary names, which nobody reads."""
    for path in run.rglob("[!.]*"):
        if ".tmp" in str(path.parent):
            continue
        if path.suffix == ".safetensors":
            load_file(path)
        if path.suffix in (".json", ".yaml"):
            assert yaml.safe_load(path.read_text()), path


@pytest.mark.slow
def test_killed_at_fifty_moments_it_ends_bit_identical(pictures: str, tmp_path: Path) -> None:
    """Just before a file is changed, or milliseconds after that: in a step, or while tensors are written."""
    out, whole = tmp_path / "killed", tmp_path / "whole"
    new = {"data": pictures, **LONG}
    assert live(whole, new) == 0
    for kill in range(KILLS):
        begun = (out / "config.yaml").exists()
        changes, delay = 1 + 29 * kill % 127, 0.001 * (kill % 4) * (kill % 7)
        assert live(out, {"resume": True} if begun else new, changes, delay) == -signal.SIGKILL, "it ended too early"
        assert_every_file_is_whole(out)
    assert live(out, {"resume": True}) == 0
    assert_same_weights(out, whole)
    assert without_timing(read_records(out / "metrics.jsonl")) == without_timing(
        read_records(whole / "metrics.jsonl")
    )
    left = {path.relative_to(out) for path in out.rglob(".*")} - {Path(".flexpredict")}
    assert left == set(), "what killed processes left is cleared away"


def without_timing(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timing = ("images_per_second", "data_wait")
    return [{name: value for name, value in record.items() if name not in timing} for record in records]
