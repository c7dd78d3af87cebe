"""Starts Lightning Fabric as a recipe asks for it, and coordinates its ranks."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.distributed
from lightning_fabric import Fabric
from lightning_fabric.plugins import Precision
from lightning_fabric.utilities.exceptions import MisconfigurationException

from flexpredict.errors import UserError
from flexpredict.runs.claim import Claim
from flexpredict.training.precision import is_cpu, low_precision
from flexpredict.training.rendezvous import join_ranks
from flexpredict.training.sharding import sharding_strategy

T = TypeVar("T")


class Hardware(Protocol):
    """The settings of the machine, which recipes of pre-training and of fine-tuning share."""

    accelerator: str
    devices: int | str
    num_nodes: int

    @property
    def strategy(self) -> str: ...

    @property
    def precision(self) -> str | None: ...


def launch(hardware: Hardware) -> Fabric:
    """Start the processes; `precision` must be known."""
    return launch_fabric(
        hardware.accelerator, hardware.devices, hardware.num_nodes, hardware.strategy, hardware.precision
    )


def launch_fabric(
    accelerator: str,
    devices: int | str,
    num_nodes: int = 1,
    strategy: str = "auto",
    precision: str | None = None,
) -> Fabric:
    """Start the processes, or join those that torchrun or `fabric run` has started, whatever their number."""
    if devices != "auto" and not (str(devices).isdecimal() and int(devices)):
        raise UserError(f"devices={devices} does not work: give a number, or auto.")
    if torch.distributed.is_torchelastic_launched():
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        num_nodes = int(os.environ["WORLD_SIZE"]) // devices
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices if devices == "auto" else int(devices),
            num_nodes=num_nodes,
            strategy=sharding_strategy() if strategy == "fsdp" else strategy,
            **_precision(accelerator, precision),
        )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise UserError(
            f"accelerator={accelerator} with devices={devices} cannot be used here: {' '.join(str(error).split())}"
        ) from error
    join_ranks("nccl" if fabric.device.type == "cuda" else "gloo")
    if os.environ.get("LT_CLI_USED", "0") == "0":  # else `fabric run` has done it
        fabric.launch()
    return fabric


class _LowPrecisionOnCPU(Precision):
    """bf16-mixed by `low_precision`; Fabric's own uses torch.autocast."""

    precision = "bf16-mixed"

    def forward_context(self) -> AbstractContextManager[Any]:
        return low_precision(torch.device("cpu"), self.precision)


def _precision(accelerator: str, precision: str | None) -> dict[str, Any]:
    if precision == "bf16-mixed" and is_cpu(accelerator):
        return {"plugins": [_LowPrecisionOnCPU()]}
    return {"precision": precision}


def gather(fabric: Fabric, value: T) -> list[T]:
    """The values of all ranks, on every rank."""
    if fabric.world_size == 1:
        return [value]
    gathered: list[T | None] = [None] * fabric.world_size
    torch.distributed.all_gather_object(gathered, value)
    return [entry for entry in gathered if entry is not None]


def on_first_rank(fabric: Fabric, act: Callable[[], T]) -> T:
    """Call `act` on the first rank and return its result on all; an error is raised on all, so that none waits."""
    outcome: tuple[Any, str] = (None, "")
    if fabric.is_global_zero:
        try:
            outcome = (act(), "")
        except UserError as error:
            outcome = (None, str(error))
    result, problem = gather(fabric, outcome)[0]
    if problem:
        raise UserError(problem)
    return cast(T, result)


@contextmanager
def holding(fabric: Fabric, claim: Claim) -> Iterator[None]:
    """Claim a run folder for the first rank, and for no other process; a start that fails leaves no trace."""
    on_first_rank(fabric, claim.take)
    try:
        yield
    except BaseException:
        if fabric.is_global_zero:
            claim.give_up()
        raise
    finally:
        claim.release()
