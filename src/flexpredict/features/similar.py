"""`flexpredict similar`: the images that are most like given ones."""

from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.features.arguments import EncoderLike, ImagesLike, Pooling, Precision, SizeLike, Which

if TYPE_CHECKING:
    from flexpredict.features.similarity import SimilarResult


def similar(
    encoder: EncoderLike,
    data: ImagesLike,
    query: list[str | int],
    *,
    top: int = 8,
    out: str | Path | None = "similar.png",
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
) -> "SimilarResult":
    """Find the images that are most like given ones, by the cosine similarity of their features.

    Gives a table and a picture of the nearest neighbors of each query. Features are cached, so the next queries take
    seconds. A query that is itself in the data is left out of its neighbors.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        data: images to search.
        query: image files, or numbers of images of the data (counted from 0).
        top: number of neighbors of each query.
        out: the picture to write, a .png, .jpg or .webp file.
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
    from flexpredict.features.similarity import check_request, find_similar
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.extraction import Extraction, one_image_size
    from flexpredict.training.engine import launch_fabric

    picture = None if out is None else Path(out)
    check_request(query, top, picture)
    how = Extraction(layers, pooling, one_image_size(image_size), batch_size, precision, workers)
    space = open_workspace(encoder, launch_fabric(accelerator, devices), which, heads, grid, partial)
    source = space.open_source(data)
    return find_similar(space.encoder, source, query, how, space.fabric, space.console, top=top, out=picture)
