"""`flexpredict pack`: images made into shards that are quick to read."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.data.arguments import StreamLike
from flexpredict.errors import UserError
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import Checked, ranged

if TYPE_CHECKING:
    from flexpredict.prepare.packing import PackResult


@dataclass(frozen=True, kw_only=True)
class PackSettings(Checked):
    """Settings of `pack`.

    Args:
        data: images to pack; with verify, the folder of the shards may be named here as well.
        out: folder for the shards and manifest.json (default: packed).
        size: shorter side of the packed images in pixels.
        quality: quality of the JPEGs, 1 to 100.
        images_per_shard: images in each tar file.
        max_skipped: largest share of unreadable images; finished shards are kept if there are more.
        workers: processes that convert images; 0 converts in this process (default: one for each core).
        verify: pack nothing, but compare the shards in the folder with their checksums.
    """

    data: StreamLike | None = field(default=None, kw_only=False)
    out: str | Path | None = field(default=None, kw_only=False)
    size: int = ranged(256, least=1, most=65_500)
    quality: int = ranged(90, least=1, most=100)
    images_per_shard: int = ranged(1000, least=1)
    max_skipped: float = ranged(0.05, least=0, most=1)
    workers: int | None = ranged(None, least=0)
    verify: bool = False


@takes_fields_of(PackSettings)
def pack(asked: PackSettings) -> "PackResult":
    """Convert images once into WebDataset shards at training resolution, which are several times quicker to read.

    Each image is turned upright, shrunk (never enlarged) and saved as a JPEG (4:2:0). A JPEG that is upright and
    small enough is copied byte for byte. Beside 000000123.jpg, the image 123, are .cls (its label, if it has one) and
    .json (its path, height and width). The same images give the same bytes with any number of workers. Run it again
    to continue after an interruption. The result is data like any other: `flexpredict pretrain packed`.
    """
    from rich.console import Console

    from flexpredict.data.sources.opening import open_data
    from flexpredict.prepare.packing import PackingFolder, pack_images, verify_shards

    if asked.verify:
        return verify_shards(Path(str(asked.out or asked.data or "packed")))
    out = Path(asked.out or "packed")
    if not asked.data:
        raise UserError("Name the images to pack and the folder for the shards: flexpredict pack FOLDER packed.")
    PackingFolder(out).require_ours()
    console = Console(soft_wrap=True)
    return pack_images(open_data(asked.data, console), out, asked, console)
