"""A run that is stopped by a signal and goes on: it must end as one that nobody stopped."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from flexpredict import pretrain
from flexpredict.methods.method import Method


def assert_a_resumed_run_ends_as_if_nothing_had_happened(
    method: type[Method], pictures: str, folder: Path, recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(pictures, folder / "whole", **recipe)
    calls, original = 0, method.after_step

    def interrupt_seventh(self: Method, momentum: float) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, momentum)

    monkeypatch.setattr(method, "after_step", interrupt_seventh)
    outcome = pretrain(pictures, folder / "stopped", **recipe)
    assert not outcome.finished and outcome.steps == 7
    assert pretrain(out=folder / "stopped", resume=True).finished
    whole, stopped = (
        load_file(folder / name / "checkpoints" / "last" / "model.safetensors") for name in ("whole", "stopped")
    )
    assert [name for name in whole if not torch.equal(whole[name], stopped[name])] == []
