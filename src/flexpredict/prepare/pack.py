"""`flexpredict pack`: images made into shards that are quick to read."""

from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.data.arguments import StreamLike

if TYPE_CHECKING:
    from flexpredict.prepare.packing.packing import PackResult


def pack(
    data: StreamLike | None = None,
    out: str | Path = "packed",
    *,
    size: int = 256,
    quality: int = 90,
    images_per_shard: int = 1000,
    max_skipped: float = 0.05,
    workers: int | None = None,
    verify: bool = False,
) -> "PackResult":
    """Convert images once into WebDataset shards at training resolution, which are several times quicker to read.

    Each image is turned upright, shrunk (never enlarged) and saved as a JPEG (4:2:0). A JPEG that is upright and
    small enough is copied byte for byte. Beside 000000123.jpg, the image 123, are .cls (its label, if it has one) and
    .json (its path, height and width). The same images give the same bytes with any number of workers. Run it again
    to go on after an interruption.

    Args:
        data: images to pack. With verify, none are needed.
        out: folder for the shards and manifest.json.
        size: shorter side of the packed images in pixels.
        quality: quality of the JPEGs, 1 to 100.
        images_per_shard: images in each tar file.
        max_skipped: largest share of unreadable images; finished shards are kept if there are more.
        workers: processes that convert images; 0 for none but this (default: one for each core).
        verify: pack nothing, but compare the shards in the folder with their checksums.
    """
    from rich.console import Console

    from flexpredict.cores import cores
    from flexpredict.data.sources.opening import open_data
    from flexpredict.errors import UserError
    from flexpredict.prepare.packing.folder import PackingFolder
    from flexpredict.prepare.packing.packing import pack_images, verify_shards

    for name, value, low, high in (
        ("size", size, 1, 65_500),
        ("quality", quality, 1, 100),
        ("images_per_shard", images_per_shard, 1, 10**9),
        ("workers", workers or 0, 0, 1024),
        ("max_skipped", max_skipped, 0, 1),
    ):
        if not low <= value <= high:
            raise UserError(f"{name}={value} must be from {low} to {high:,}.")
    out = Path(out)
    if verify:
        return verify_shards(out)
    if not data:
        raise UserError("Name the images to pack and the folder for the shards: flexpredict pack FOLDER packed.")
    PackingFolder(out).require_ours()
    console = Console(soft_wrap=True)
    return pack_images(
        open_data(data, console),
        out,
        size=size,
        quality=quality,
        images_per_shard=images_per_shard,
        max_skipped=max_skipped,
        workers=cores() if workers is None else workers,
        console=console,
    )
