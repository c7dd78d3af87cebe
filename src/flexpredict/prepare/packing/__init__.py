"""Any source of images made into WebDataset shards at training resolution, once, so that reading them is quick.

Images keep their order and their number in the source: shard k holds the images k * n to (k + 1) * n - 1, apart from
those that could not be read. Worker processes decode and encode, a few images at a time; this process reads streams,
and writes. A shard that is finished has a record beside it, and a run that was interrupted goes on after those.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from flexpredict import __version__
from flexpredict.cores import cores
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import MANIFEST, Manifest, SkippedImage
from flexpredict.data.sources.opening import open_images
from flexpredict.data.sources.streams import ImageStream
from flexpredict.errors import UserError
from flexpredict.prepare.packing.folder import PackingFolder
from flexpredict.prepare.packing.input import PackingInput, packing_input
from flexpredict.prepare.packing.shard_writing import LeftOut, PackedImage, ShardRecord, write_shard
from flexpredict.prepare.packing.workers import Packed, Packer, pack_in_order
from flexpredict.progress import Counting

_FEW_SKIPPED = 20


def pack(
    source: str | Sequence[str] | ImageSource | ImageStream,
    out: Path,
    *,
    size: int = 256,
    quality: int = 90,
    images_per_shard: int = 1000,
    workers: int | None = None,
    max_skipped: float = 0.05,
    console: Console | None = None,
) -> Manifest:
    """Write all images of `source` into shards in the folder `out`, and a manifest when all are there.

    An image is shrunk until its shorter side is `size` (never enlarged), turned upright and saved as a JPEG of the
    given quality (4:2:0). What is such a JPEG already, or a greyscale one, and no larger, is copied byte for byte: it
    loses nothing. Beside 000000123.jpg, the image 123 of the source, are .cls (its label, if it has one) and .json
    (its path, and the height and width it had).

    The same images give the same bytes, with any number of workers (default: one a core; 0: this process alone), and
    after an interruption: run the same again to go on. Stops with a UserError when more than the share `max_skipped`
    of the images cannot be read; what is finished then stays too.
    """
    _check(size, quality, images_per_shard, workers, max_skipped)
    console = console or Console(soft_wrap=True)
    folder = PackingFolder(out)
    folder.require_ours()
    with Counting(console, "listing", "images") as counting:
        opened = open_images(source, counting.add) if isinstance(source, str | Sequence) else source
    images = packing_input(opened)
    settings = {"size": size, "quality": quality, "images_per_shard": images_per_shard}
    folder.begin({"source": images.name, **images.identity, **settings})
    shards = folder.finished_shards()
    tally = _Tally(images.name, max_skipped)
    for record in shards.values():
        tally.add(record.shard.last - record.shard.first + 1, record.skipped)

    packer = Packer(images.source, size, quality)
    batches = images.batches(images_per_shard, shards.keys())
    with (
        closing(pack_in_order(packer, batches, cores() if workers is None else workers)) as packed,
        Counting(console, "packing", "images", images.length, done=tally.images) as progress,
    ):
        tally.add(len(images.problems), images.problems)
        items = _counted(packed, tally, progress)
        try:
            for first in items:
                number = first.index // images_per_shard
                shards[number] = write_shard(folder.shard(number), _shard_from(first, items, images_per_shard))
        except KeyboardInterrupt:
            console.print(f"Interrupted. {len(shards):,} shards are finished; run the same again to go on.")
            raise
    tally.require_enough(at_end=True)
    manifest = _manifest(images, size, quality, shards)
    folder.finish(manifest)
    console.print(_summary(manifest, out), highlight=False, markup=False)
    return manifest


@dataclass
class _Tally:
    """How many images there were, and which of them could not be read."""

    source: str
    max_skipped: float
    images: int = 0
    skipped: list[SkippedImage] = field(default_factory=list)

    def add(self, images: int, skipped: Collection[SkippedImage]) -> None:
        self.images += images
        self.skipped += skipped

    def require_enough(self, at_end: bool = False) -> None:
        """Too many are a broken set, not broken files. A few at the beginning say nothing of the whole."""
        skipped = len(self.skipped)
        if at_end and skipped == self.images:
            tried = f"none of {skipped} could be read" if skipped else "there are none"
            raise UserError(f"No images to pack in {self.source}: {tried}.{self._examples()} Check its files.")
        if (at_end or skipped > _FEW_SKIPPED) and skipped > self.max_skipped * self.images:
            raise UserError(
                f"{skipped:,} of {self.images:,} images of {self.source} could not be read, more than"
                f" max_skipped={self.max_skipped:g} allows.{self._examples()} Mend or remove them, or run the same"
                " again with a higher max_skipped: finished shards are kept."
            )

    def _examples(self) -> str:
        return "".join(f" {skipped.name}: {skipped.reason}." for skipped in self.skipped[:3])


def _counted(batches: Iterator[Packed], tally: _Tally, progress: Counting) -> Iterator[PackedImage | LeftOut]:
    for batch in batches:
        skipped = [item.skipped for item in batch if isinstance(item, LeftOut)]
        tally.add(len(batch), skipped)
        tally.require_enough()
        progress.add(len(batch), f"{len(tally.skipped):,} unreadable" if tally.skipped else "")
        yield from batch


def _shard_from(
    first: PackedImage | LeftOut, items: Iterator[PackedImage | LeftOut], images_per_shard: int
) -> Iterator[PackedImage | LeftOut]:
    """Up to the last that belongs there, and not one more: a full shard does not wait for the next to begin."""
    for item in chain((first,), items):
        yield item
        if (item.index + 1) % images_per_shard == 0:
            return


def _manifest(images: PackingInput, size: int, quality: int, shards: dict[int, ShardRecord]) -> Manifest:
    records = [shards[number] for number in sorted(shards)]
    return Manifest(
        source=images.name,
        size=size,
        quality=quality,
        classes=images.classes,
        shards=tuple(record.shard for record in records),
        skipped=(*images.problems, *(skipped for record in records for skipped in record.skipped)),
        version=__version__,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _summary(manifest: Manifest, out: Path) -> str:
    skipped = f"; {len(manifest.skipped):,} could not be read, see {MANIFEST} there" if manifest.skipped else ""
    return (
        f"Packed {manifest.images:,} images into {_shards(len(manifest.shards))} in {out}"
        f" ({decimal(manifest.bytes)}){skipped}."
    )


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"


def _check(size: int, quality: int, images_per_shard: int, workers: int | None, max_skipped: float) -> None:
    for name, value, low, high in (
        ("size", size, 1, 65_500),
        ("quality", quality, 1, 100),
        ("images_per_shard", images_per_shard, 1, 10**9),
        ("workers", workers or 0, 0, 1024),
        ("max_skipped", max_skipped, 0, 1),
    ):
        if not low <= value <= high:
            raise UserError(f"{name}={value} is out of range. Use a number from {low} to {high:,}.")
