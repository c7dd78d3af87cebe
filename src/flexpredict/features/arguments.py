"""Settings that many verbs share: which encoder, which hardware, frozen features.

A type checker sees all that may be given: a name, or the thing itself. At run time the types are plain, so that a
command line can be made of them without importing torch.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from flexpredict.settings.extraction import Extraction, Which

if TYPE_CHECKING:
    from flexpredict.encoders.image_encoder import ImageEncoder
    from flexpredict.features.workspace import Workspace

    EncoderLike: TypeAlias = str | Path | ImageEncoder
else:
    EncoderLike = str | Path


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """How an encoder is opened that is given by its name.

    Args:
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
    """

    which: Which = "target"
    heads: int | None = None
    grid: str | None = None
    partial: bool = False


@dataclass(frozen=True, kw_only=True)
class EncoderChoice(EncoderOptions):
    """Which encoder is used.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
    """

    encoder: EncoderLike = field(kw_only=False)


@dataclass(frozen=True, kw_only=True)
class FrozenFeatures(EncoderChoice, Extraction):
    """Features of a frozen encoder, and what computes them.

    Args:
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices that share the work, or auto for all.
    """

    accelerator: str = "auto"
    devices: int | str = 1

    def open_workspace(self) -> "Workspace":
        """The encoder, and the processes that share the work."""
        from flexpredict.features.workspace import open_workspace
        from flexpredict.training.engine import launch_fabric

        return open_workspace(self.encoder, launch_fabric(self.accelerator, self.devices), self)
