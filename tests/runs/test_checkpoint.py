"""Checkpoints: damage is found, the one before is used, and what need not be kept goes."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from interrupted import weights
from tiny import RECIPE
from torch import nn

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.runs.checkpoint import Keep, last_checkpoint, load_checkpoint, save_checkpoint


def a_model() -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, [optimizer]


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["one bit", "truncated", "gone"])
def test_a_damaged_checkpoint_is_passed_over_in_words(name: str, damage: str, tmp_path: Path) -> None:
    model, optimizers = a_model()
    save_checkpoint(tmp_path, 3, model, optimizers, {})
    expected = model.weight.detach().clone()
    nn.init.zeros_(model.weight)
    save_checkpoint(tmp_path, 6, model, optimizers, {})
    path = tmp_path / "step-6" / name
    content = bytearray(path.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 4
    path.write_bytes(content if damage == "one bit" else content[:-1])
    if damage == "gone":
        path.unlink()
    warnings: list[str] = []
    state = load_checkpoint(tmp_path, model, optimizers, warnings.append)
    assert state is not None and state["step"] == 3 and torch.equal(model.weight, expected)
    if (name, damage) != ("state.json", "gone"):  # without it, a folder is no checkpoint
        assert len(warnings) == 1 and "step-6 is damaged" in warnings[0] and "step-3" in warnings[0]


def test_the_state_of_an_optimizer_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put together anew each time, which takes seconds for a large model."""
    model, (optimizer,) = a_model()
    original, asked = optimizer.state_dict, []

    def state_dict() -> dict[str, Any]:
        asked.append(True)
        return original()

    monkeypatch.setattr(optimizer, "state_dict", state_dict)
    save_checkpoint(tmp_path, 3, model, [optimizer], {})
    assert len(asked) == 1


def test_without_another_one_damage_is_an_error(tmp_path: Path) -> None:
    model, optimizers = a_model()
    save_checkpoint(tmp_path, 3, model, optimizers, {})
    (tmp_path / "step-3" / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"step-3 is damaged.*no other one"):
        load_checkpoint(tmp_path, model, optimizers)


def test_a_run_whose_last_checkpoint_was_damaged_ends_as_if_nothing_had_happened(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run, symlinks=True)
    path = run / "checkpoints" / "step-18" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert pretrain(out=run, resume=True).finished
    assert "step-18 is damaged" in capsys.readouterr().out.replace("\n", " ")
    ours, theirs = weights(run), weights(finished)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("symlinks", [True, False])
def test_a_run_that_was_copied_goes_on(symlinks: bool, pictures: str, finished: Path, tmp_path: Path) -> None:
    """Tools that follow links put a second copy in the place of `last`; others leave it out."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    pretrain(pictures, run, **RECIPE)
    shutil.rmtree(run / "checkpoints" / "step-18")
    (run / "checkpoints" / "last").unlink()
    (run / "checkpoints" / "last").symlink_to("step-15")
    shutil.copytree(run, copy, symlinks=symlinks)
    if symlinks:
        (copy / "checkpoints" / "last").unlink()
    assert pretrain(out=copy, resume=True).finished
    assert (copy / "checkpoints" / "last").is_symlink()
    ours, theirs = weights(copy), weights(finished)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_what_is_kept(tmp_path: Path) -> None:
    model, optimizers = a_model()

    def save(step: int, **how: Any) -> None:
        save_checkpoint(tmp_path, step, model, optimizers, {}, Keep(**how))

    save(1)
    save(2, this=True)
    save(3, best=True)
    for step in (4, 5, 6):
        save(step)
    assert steps(tmp_path) == ["step-2", "step-3", "step-5", "step-6"]
    save(7, best=True, last=1)
    assert steps(tmp_path) == ["step-2", "step-7"], "3 is no longer the best"
    save(5, last=3)
    assert steps(tmp_path) == ["step-2", "step-5", "step-7"]
    assert last_checkpoint(tmp_path) == tmp_path / "step-5", "a run that went back goes on from there"
