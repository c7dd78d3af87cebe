"""Runs that something happens to in mid-run: they must end as one that nobody disturbed."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from flexpredict import pretrain
from flexpredict.methods.ijepa import IJEPA
from flexpredict.methods.method import Method


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "last" / "model.safetensors")


def assert_same_weights(first: Path, second: Path) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def at_step(
    number: int, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch, method: type[Method] = IJEPA
) -> None:
    """Let something happen at the end of a step, counted from now on."""
    calls, original = 0, method.after_step

    def after_step(self: Method, momentum: float) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == number:
            act()
        return original(self, momentum)

    monkeypatch.setattr(method, "after_step", after_step)


def send(number: int, monkeypatch: pytest.MonkeyPatch, at: int = 7, method: type[Method] = IJEPA) -> None:
    """A signal to this process in the step of this number."""
    at_step(at, lambda: os.kill(os.getpid(), number), monkeypatch, method)


def assert_a_resumed_run_ends_as_if_nothing_had_happened(
    method: type[Method], pictures: str, folder: Path, recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(pictures, folder / "whole", **recipe)
    send(signal.SIGTERM, monkeypatch, method=method)
    outcome = pretrain(pictures, folder / "stopped", **recipe)
    assert not outcome.finished and outcome.steps == 7
    assert pretrain(out=folder / "stopped", resume=True).finished
    assert_same_weights(folder / "whole", folder / "stopped")
