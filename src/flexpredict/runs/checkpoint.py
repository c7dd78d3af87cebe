"""Checkpoints: everything a run needs to go on bit for bit, as safetensors and JSON.

`checkpoints/step-N/` holds model.safetensors, optimizer.safetensors and state.json; `checkpoints/last` is a link to
the newest. A folder appears whole or not at all, and the one before it goes only after the new one is in place.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flexpredict.errors import UserError, in_a_line
from flexpredict.files import point_to, write_folder_atomically, write_text_atomically


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: dict[str, Any],
    keep: bool,
) -> Path:
    """Write `folder/step-N`, point `folder/last` at it, and drop older ones unless they were to be kept.

    state: what else the loop must know, JSON values; keep: do not remove this checkpoint when a newer one comes.
    """
    path = folder / f"step-{step}"

    def write(temporary: Path) -> None:
        save_file(_tensors(model.state_dict()), temporary / "model.safetensors")
        save_file(_tensors(_optimizer_tensors(model, optimizers)), temporary / "optimizer.safetensors")
        write_text_atomically(temporary / "state.json", json.dumps({"step": step, "keep": keep, **state}) + "\n")

    write_folder_atomically(path, write)
    point_to(folder / "last", path)
    for other in [
        *folder.glob("step-*"),
        *folder.glob(".step-*.tmp"),
    ]:  # the latter: left by a process that was killed
        if other != path and not ((other / "state.json").is_file() and read_state(other)["keep"]):
            shutil.rmtree(other, ignore_errors=True)
    return path


def load_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Any] | None:
    """Load the newest whole checkpoint into model and optimizers; its state, or None where there is none."""
    path = last_checkpoint(folder)
    if path is None:
        return None
    load_model(path, model)
    with _damage_explained(path):
        states: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, tensor in load_file(path / "optimizer.safetensors").items():
            entry, name = key.split("/", 1)
            states[name][entry] = tensor
        for optimizer in optimizers:
            saved = optimizer.state_dict()
            names = _parameter_names(model, optimizer)
            saved["state"] = {index: states[name] for index, name in enumerate(names) if name in states}
            optimizer.load_state_dict(saved)
    return read_state(path)


def load_model(path: Path, model: nn.Module) -> None:
    """Weights of the model only."""
    with _damage_explained(path):
        tensors = load_file(path / "model.safetensors")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(
            f"The weights in {path} do not fit this model: {str(error).splitlines()[-1].strip()} "
            "Use the recipe the run was made with, or start a new run."
        ) from error


def model_tensors(checkpoint: Path, prefix: str = "") -> dict[str, Tensor]:
    """The weights of a checkpoint whose names begin with `prefix`, which is cut off."""
    with safe_open(checkpoint / "model.safetensors", framework="pt") as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a mapping)
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


def newest_checkpoint(folder: Path) -> Path:
    """The newest whole checkpoint below a run's checkpoints folder; raises where there is none."""
    path = last_checkpoint(folder)
    if path is None:
        raise UserError(f"There is no checkpoint in {folder}. Name a run folder that has trained for a while.")
    return path


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint below a run's checkpoints folder, or None."""
    link = folder / "last"
    if (link / "state.json").is_file():
        return link.resolve()
    # The link is lost when a folder is copied by tools that do not know links.
    whole = [path for path in folder.glob("step-*") if (path / "state.json").is_file()]
    return max(whole, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def read_state(path: Path) -> dict[str, Any]:
    """What a checkpoint says besides its weights: the step, and what the loop must know to go on."""
    with _damage_explained(path):
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return {"step": int(state["step"]), **state}


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"The checkpoint {path} is damaged ({in_a_line(error, 100)}). Restore it from a copy, or delete that "
            "folder to go on from the checkpoint before it, if one was kept."
        ) from error


def _optimizer_tensors(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    return {
        f"{entry}/{name}": tensor
        for optimizer in optimizers
        for index, name in enumerate(_parameter_names(model, optimizer))
        for entry, tensor in optimizer.state_dict()["state"].get(index, {}).items()
    }


def _parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimizer's parameters in its own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def _tensors(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in state.items()}
