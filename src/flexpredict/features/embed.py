"""`flexpredict embed`: the features of all images in one file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flexpredict.data.arguments import StreamLike
from flexpredict.features.arguments import FrozenFeatures
from flexpredict.settings.parameters import takes_fields_of

if TYPE_CHECKING:
    from flexpredict.features.embedding import EmbedResult


@dataclass(frozen=True, kw_only=True)
class EmbedSettings(FrozenFeatures):
    """Settings of `embed`.

    Args:
        data: images to embed. stream:DATA is read in order.
        out: a file that ends in .parquet, .npy or .safetensors.
        patches: write the features of all patches too.
        dtype: number type of patch features; pooled features are always float32.
        overwrite: replace an existing file, and unfinished work of another encoder or data.
    """

    data: StreamLike = field(kw_only=False)
    out: str | Path = field(kw_only=False)
    patches: bool = False
    dtype: Literal["float16", "float32"] = "float16"
    overwrite: bool = False


@takes_fields_of(EmbedSettings)
def embed(asked: EmbedSettings) -> "EmbedResult":
    """Write the features of all images into one file.

    A .parquet table has one row for each image, with its name and class. For .npy and .safetensors arrays the names
    are in a text file beside them. Memory does not grow with the number of images. Run it again to continue after
    an interruption: finished work is kept in OUT.parts.
    """
    from flexpredict.features.embedding import require_free, write_embedding
    from flexpredict.features.workspace import open_workspace
    from flexpredict.training.engine import launch_fabric

    fabric = launch_fabric(asked.accelerator, asked.devices)
    require_free(asked, fabric)
    space = open_workspace(asked.encoder, fabric, asked)
    return write_embedding(space, space.open_images(asked.data), asked)
