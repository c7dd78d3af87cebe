"""Settings that many verbs share: which encoder, which hardware, frozen features."""

from dataclasses import dataclass

from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.settings.extraction import Extraction


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures(EncoderChoice, Extraction):
    """Features of a frozen encoder, and what computes them.

    Args:
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices that share the work, or auto for all.
    """

    accelerator: str = "auto"
    devices: int | str = 1
