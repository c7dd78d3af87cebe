"""Settings that choose and open an encoder, declared without torch for the command line."""

import re
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from flexpredict.errors import UserError
from flexpredict.settings.extraction import Which
from flexpredict.settings.ranges import Checked, ranged

# A type checker sees everything that is accepted: a name, or an encoder in memory.
if TYPE_CHECKING:
    from torch import nn

    from flexpredict.encoders.image_encoder import ImageEncoder

    EncoderLike: TypeAlias = str | PathLike[str] | ImageEncoder | nn.Module
else:
    EncoderLike = str


def parse_grid(grid: str | tuple[int, int]) -> tuple[int, int]:
    """4x16 -> rows and columns of patches."""
    text = grid if isinstance(grid, str) else "x".join(map(str, grid))
    sides = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if sides is None:
        raise UserError(f"grid={text} is not a grid. Give rows x columns of patches: grid=4x16.")
    return int(sides[1]), int(sides[2])


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(Checked):
    """How to open an encoder that is given by name.

    Args:
        which: encoder to take from a run or checkpoint that has two: target (the moving average, the teacher) or
            context (the one that is trained).
        heads: attention heads, if the checkpoint does not say.
        grid: rows x columns of patches, 4x16, if the checkpoint does not say.
        partial: accept a checkpoint with missing or additional tensors.
    """

    which: Which = "target"
    heads: int | None = ranged(None, least=1)
    grid: str | tuple[int, int] | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None:
            parse_grid(self.grid)


@dataclass(frozen=True, kw_only=True)
class EncoderChoice(EncoderOptions):
    """The encoder to use.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
    """

    encoder: EncoderLike = field(kw_only=False)
