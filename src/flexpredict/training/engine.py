"""Lightning Fabric as a recipe asks for it."""

from typing import Protocol

from lightning_fabric import Fabric


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
