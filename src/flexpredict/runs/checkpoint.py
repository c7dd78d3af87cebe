"""Checkpoints: everything a run needs to continue bit for bit, as safetensors and JSON.

`checkpoints/step-N/` holds model.safetensors, optimizer.safetensors, state.json, and SHA256SUMS, by which damage is
found (`sha256sum -c` reads it, too); `checkpoints/last` is a link to the newest. A folder appears whole or not at
all, and older ones are removed only after the new one is in place.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from flexpredict.errors import UserError, in_a_line
from flexpredict.files import point_to, sha256_of, write_folder_atomically, write_text_atomically

_SUMS = "SHA256SUMS"


class DamagedCheckpointError(UserError):
    """A checkpoint differs from what was written."""


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay when a newer one is written.

    Args:
        last: number of newest checkpoints to keep; more than one, in case the newest is damaged.
        this: never remove the one being written.
        best: keep the one being written until another is the best.
    """

    last: int = 2
    this: bool = False
    best: bool = False


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: dict[str, Any],
    keep: Keep | None = None,
    write: bool = True,
) -> None:
    """Write `folder/step-N`, point `folder/last` at it, and remove what need not be kept.

    state: what else the loop must know, as JSON values; write: true on one rank. All ranks must call this, because
    each may have only a part of the weights.
    """
    keep = keep or Keep()
    weights = whole_tensors(model.state_dict(), write)
    moments = whole_tensors(_optimizer_tensors(model, optimizers), write)
    if not write:
        return
    path = folder / f"step-{step}"

    def fill(temporary: Path) -> None:
        save_file(weights, temporary / "model.safetensors")
        save_file(moments, temporary / "optimizer.safetensors")
        text = json.dumps({"step": step, "keep": keep.this, **state}) + "\n"
        write_text_atomically(temporary / "state.json", text)
        sums = "".join(f"{sha256_of(file)}  {file.name}\n" for file in sorted(temporary.iterdir()))
        write_text_atomically(temporary / _SUMS, sums)

    write_folder_atomically(path, fill)
    point_to(folder / "last", path)
    if keep.best:
        point_to(folder / "best", path)
    _prune(folder, step, keep.last)


def load_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    warn: Callable[[str], None] = lambda text: None,
) -> dict[str, Any] | None:
    """Load the newest whole checkpoint into model and optimizers. Returns its state; None if there is none.

    warn: called with a message if a newer one is damaged.
    """
    problem: DamagedCheckpointError | None = None
    for path in _newest_first(folder):
        if problem is not None:
            warn(f"{problem} The run continues from the one before, {path.name}.")
        try:
            _verify(path)
            _load(path, model, optimizers)
            return read_state(path)
        except DamagedCheckpointError as error:
            problem = error
    if problem is not None:
        raise UserError(f"{problem} There is no other one. Restore it from a copy, or start a new run.") from problem
    return None


def _load(path: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    load_model(path, model)
    with _damage_explained(path):
        states: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, tensor in load_file(path / "optimizer.safetensors").items():
            entry, name = key.split("/", 1)
            states[name][entry] = tensor
    parameters = dict(model.named_parameters())
    for optimizer in optimizers:
        saved = optimizer.state_dict()
        names = _parameter_names(model, optimizer)
        saved["state"] = {
            index: {entry: _sharded_like(tensor, parameters[name]) for entry, tensor in states[name].items()}
            for index, name in enumerate(names)
            if name in states
        }
        optimizer.load_state_dict(saved)


def load_model(path: Path, model: nn.Module) -> None:
    """Weights of the model only."""
    with _damage_explained(path):
        tensors = load_file(path / "model.safetensors")
    current = model.state_dict()
    tensors = {name: _sharded_like(tensor, current.get(name)) for name, tensor in tensors.items()}
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
    """The newest whole checkpoint below a run's checkpoints folder; raises if there is none."""
    path = last_checkpoint(folder)
    if path is None:
        raise UserError(f"There is no checkpoint in {folder}. Name a run folder that has trained for a while.")
    return path


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint below a run's checkpoints folder, or None."""
    return next(_newest_first(folder), None)


def last_step(folder: Path) -> int:
    """The step of the newest checkpoint below a run's checkpoints folder; 0 if there is none."""
    path = last_checkpoint(folder)
    if path is None:
        return 0
    return _step_of(path) if _step_of(path) >= 0 else int(read_state(path)["step"])


def _newest_first(folder: Path) -> Iterator[Path]:
    link = folder / "last"
    # Tools that copy a folder may drop the link, or replace it with a copy of the checkpoint.
    newest = link.resolve() if (link / "state.json").is_file() else None
    whole = [path for path in folder.glob("step-*") if (path / "state.json").is_file()]
    if newest is not None:
        yield newest
    yield from sorted((path for path in whole if path.resolve() != newest), key=_step_of, reverse=True)


def read_state(path: Path) -> dict[str, Any]:
    """The state of a checkpoint: its step, and what the loop needs to continue."""
    with _damage_explained(path):
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return {"step": int(state["step"]), **state}


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"The checkpoint {path} is damaged ({in_a_line(error, 100)}).") from error


def _verify(path: Path) -> None:
    """Compare the files with what was written."""
    with _damage_explained(path):
        if not (path / _SUMS).is_file():
            return  # nothing to compare with
        for line in (path / _SUMS).read_text(encoding="utf-8").splitlines():
            expected, _, name = line.partition("  ")
            if sha256_of(path / Path(name).name) != expected:
                raise ValueError(f"the checksum of {name} is wrong")


def _prune(folder: Path, step: int, last: int) -> None:
    """Remove older checkpoints except the `last` newest, and newer ones, whose steps were undone; keep kept ones."""
    best = (folder / "best").resolve()
    older = sorted((path for path in folder.glob("step-*") if _step_of(path) <= step), key=_step_of)
    newer = [path for path in folder.glob("step-*") if _step_of(path) > step]
    for path in [*older[:-last], *newer]:
        if path.resolve() != best and not _is_kept(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_kept(path: Path) -> bool:
    try:
        return bool(read_state(path)["keep"])
    except (DamagedCheckpointError, KeyError):
        return False


def _step_of(path: Path) -> int:
    number = path.name.removeprefix("step-")
    return int(number) if number.isdecimal() else -1


def _optimizer_tensors(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for optimizer in optimizers:
        names = _parameter_names(model, optimizer)
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"{entry}/{names[index]}": tensor for entry, tensor in moments.items()}
    return tensors


def _parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimizer's parameters in its own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def whole_tensors(state: Mapping[str, Tensor], wanted: bool = True) -> dict[str, Tensor]:
    """Whole tensors in the memory of this process. Sharded ones are gathered, for which all ranks must call this.

    wanted: whether this rank needs them; if not, the result is empty.
    """
    whole = {}
    for name, tensor in state.items():
        one = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if wanted:
            whole[name] = one.detach().contiguous().cpu()
    return whole


def _sharded_like(tensor: Tensor, like: Tensor | None) -> Tensor:
    """This rank's part of a tensor, if `like` is sharded."""
    if isinstance(like, DTensor) and tensor.shape == like.shape:
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor
