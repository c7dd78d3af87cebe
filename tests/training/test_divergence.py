"""A loss that is not a number or explodes: the run stops, or goes back and leaves out the batch."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from interrupted import weights
from tiny import RECIPE

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA, Prediction
from flexpredict.training import loop


def break_step(number: int, factor: float, monkeypatch: pytest.MonkeyPatch, gradients_only: bool = False) -> None:
    """The batch of one step has a loss that is multiplied; told by its masks, which are those of no other step."""
    seen: list[torch.Tensor] = []
    original = IJEPA.forward

    def forward(self: IJEPA, images: torch.Tensor, context: torch.Tensor, *rest: Any) -> Prediction:
        if len(seen) < number:
            seen.append(context)
        result = original(self, images, context, *rest)
        if len(seen) == number and torch.equal(seen[-1], context):
            if gradients_only:
                result.loss.register_hook(lambda gradient: gradient * factor)
                return result
            return result._replace(loss=result.loss * factor)
        return result

    monkeypatch.setattr(IJEPA, "forward", forward)


@pytest.mark.parametrize(
    ("factor", "gradients_only"), [(float("nan"), False), (float("inf"), False), (1e4, False), (float("nan"), True)]
)
def test_rollback_leaves_out_the_batch_and_nothing_else(
    factor: float, gradients_only: bool, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {**RECIPE, "epochs": 2, "on_nan": "rollback"}
    with monkeypatch.context() as patch:
        break_step(8, factor, patch, gradients_only)
        assert pretrain(pictures, tmp_path / "run", **recipe).finished
    state = json.loads((tmp_path / "run" / "checkpoints" / "last" / "state.json").read_text())
    assert state["left_out"] == [8]
    told = (tmp_path / "run" / "warnings.jsonl").read_text()
    assert "step 8" in told and "left out" in told

    original = loop.LossGuard.leaves_out
    monkeypatch.setattr(
        loop.LossGuard, "leaves_out", lambda self, step, *rest: step == 8 or original(self, step, *rest)
    )
    pretrain(pictures, tmp_path / "without", **recipe)
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "without")
    assert all(torch.isfinite(tensor).all() for tensor in ours.values())
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [2, 4, 6, 8, 10, 12]


def test_a_run_that_left_out_a_batch_resumes_as_it_was(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {**RECIPE, "epochs": 2, "on_nan": "rollback"}
    with monkeypatch.context() as patch:
        break_step(2, float("nan"), patch)  # before there is a checkpoint but the first
        assert pretrain(pictures, tmp_path / "whole", **recipe).finished
    with monkeypatch.context() as patch:
        break_step(2, float("nan"), patch)
        original = loop.LossGuard.expect

        def stop(self: Any, loss: float | None) -> None:
            original(self, loss)
            os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(loop.LossGuard, "expect", stop)
        assert not pretrain(pictures, tmp_path / "stopped", **recipe).finished
    assert pretrain(out=tmp_path / "stopped", resume=True).finished
    ours, theirs = weights(tmp_path / "stopped"), weights(tmp_path / "whole")
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_an_exploding_loss_stops_the_run_by_default(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_step(8, 1e4, monkeypatch)
    with pytest.raises(
        UserError, match=r"loss of step 8 exploded to .* is from before that and intact.*on_nan=rollback"
    ):
        pretrain(pictures, tmp_path / "run", **RECIPE)


def test_weights_that_are_not_numbers_are_not_saved(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss tells only in the next step."""
    break_step(9, float("nan"), monkeypatch, gradients_only=True)
    with pytest.raises(UserError, match=r"weights are not numbers after step 9"):
        pretrain(pictures, tmp_path / "run", **RECIPE)
    assert json.loads((tmp_path / "run" / "checkpoints" / "last" / "state.json").read_text())["step"] == 6


def test_a_run_that_breaks_again_and_again_stops(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = IJEPA.forward

    def broken(self: IJEPA, *arguments: Any) -> Prediction:
        result = original(self, *arguments)
        return result._replace(loss=result.loss * float("nan"))

    monkeypatch.setattr(IJEPA, "forward", broken)
    with pytest.raises(UserError, match="10 batches were left out"):
        pretrain(pictures, tmp_path / "run", **RECIPE, on_nan="rollback")
