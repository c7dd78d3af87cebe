"""Settings that many commands share: encoder, hardware, frozen features."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.settings.extraction import Extraction

if TYPE_CHECKING:
    from flexpredict.features.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures(EncoderChoice, Extraction):
    """Features of a frozen encoder, and the hardware that computes them.

    Args:
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices that share the work, or auto for all.
    """

    accelerator: str = "auto"
    devices: int | str = 1

    def open_workspace(self) -> "Workspace":
        """Open the encoder, and start the processes that share the work."""
        from flexpredict.features.workspace import open_workspace
        from flexpredict.training.engine import launch_fabric

        return open_workspace(self.encoder, launch_fabric(self.accelerator, self.devices), self)
