"""`flexpredict embed`: the features of all images in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flexpredict.features.arguments import EncoderLike, Pooling, Precision, SizeLike, StreamLike, Which

if TYPE_CHECKING:
    from flexpredict.features.embedding import EmbedResult


def embed(
    encoder: EncoderLike,
    data: StreamLike,
    out: str | Path,
    *,
    patches: bool = False,
    dtype: Literal["float16", "float32"] = "float16",
    overwrite: bool = False,
    layers: int = 1,
    pooling: Pooling | None = None,
    image_size: SizeLike | None = None,
    batch_size: int = 64,
    workers: int = 0,
    precision: Precision = "32-true",
    accelerator: str = "auto",
    devices: int | str = 1,
    which: Which = "target",
    heads: int | None = None,
    grid: str | None = None,
    partial: bool = False,
) -> "EmbedResult":
    """Write the features of all images into one file.

    A .parquet table has one row for each image, with its name and class. For .npy and .safetensors arrays the names
    are in a text file beside them. Memory does not grow with the number of images. Run it again to go on after an
    interruption: finished work waits in OUT.parts.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        data: images to embed. stream:DATA is read in order.
        out: a file that ends in .parquet, .npy or .safetensors.
        patches: write the features of all patches too.
        dtype: number type of patch features; pooled features are always float32.
        overwrite: replace an existing file, and unfinished work of another encoder or data.
        layers: number of last layers whose features are concatenated (paper: 1 and 4).
        pooling: mean of the patches, or class token (default: the encoder's own).
        image_size: height x width, 224 or 256x192 (default: as trained).
        batch_size: images encoded at a time.
        workers: processes that read images.
        precision: precision of the encoder; bf16-mixed is faster on GPUs.
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices that share the work, or auto for all.
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
    """
    from flexpredict.features.embedding import require_free, write_embedding
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.extraction import Extraction, one_image_size
    from flexpredict.training.engine import launch_fabric

    how = Extraction(layers, pooling, one_image_size(image_size), batch_size, precision, workers)
    fabric = launch_fabric(accelerator, devices)
    require_free(Path(out), overwrite, fabric)
    space = open_workspace(encoder, fabric, which, heads, grid, partial)
    images = space.open_images(data)
    kept = dtype if patches else None
    return write_embedding(
        space.encoder, images, Path(out), how, fabric, space.console, patches=kept, overwrite=overwrite
    )
