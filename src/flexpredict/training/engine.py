"""Lightning Fabric as a recipe asks for it, and what its ranks do together."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch.distributed
from lightning_fabric import Fabric

from flexpredict.errors import UserError

T = TypeVar("T")


class Hardware(Protocol):
    """What recipes of pre-training and of fine-tuning say about the machine."""

    accelerator: str
    devices: int | str
    num_nodes: int
    strategy: str

    @property
    def precision(self) -> str | None: ...


def launch(hardware: Hardware) -> Fabric:
    """Start the processes; `precision` must be known."""
    fabric = Fabric(
        accelerator=hardware.accelerator,
        devices=hardware.devices if hardware.devices == "auto" else int(hardware.devices),
        num_nodes=hardware.num_nodes,
        strategy=hardware.strategy,
        precision=hardware.precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def gather(fabric: Fabric, value: T) -> list[T]:
    """What each rank has, on all of them."""
    if fabric.world_size == 1:
        return [value]
    gathered: list[T | None] = [None] * fabric.world_size
    torch.distributed.all_gather_object(gathered, value)
    return [entry for entry in gathered if entry is not None]


def on_first_rank(fabric: Fabric, act: Callable[[], None]) -> None:
    """Do it on the first rank; if that is refused, refuse on all, so that none waits for ever."""
    problem = ""
    if fabric.is_global_zero:
        try:
            act()
        except UserError as error:
            problem = str(error)
    problem = gather(fabric, problem)[0]
    if problem:
        raise UserError(problem)
