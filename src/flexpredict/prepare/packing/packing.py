"""Packs images into shards.

Images keep their order and their number: shard k holds the images k * n to (k + 1) * n - 1, apart from those that
could not be read. Worker processes decode and encode, a few images at a time; this process reads streams, and writes.
A shard that is finished has a record beside it, and a run that was interrupted goes on after those.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from flexpredict import __version__
from flexpredict.data.sources.identity import identity
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import MANIFEST, Manifest, SkippedImage, damaged_shards
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import ImageStream
from flexpredict.data.workers import Computed, WorkerResults
from flexpredict.errors import UserError, some_of
from flexpredict.prepare.packing.folder import PackingFolder
from flexpredict.prepare.packing.packer import Packer, batches_of
from flexpredict.prepare.packing.shard_writing import PackedImage, write_shard
from flexpredict.progress import Counting
from flexpredict.showing import numbers_table, say

_FEW_SKIPPED = 20


@dataclass(frozen=True)
class PackResult:
    """A finished set of shards."""

    manifest: Manifest
    folder: Path
    summary: str
    files: list[Path] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        skipped = len(self.manifest.skipped)
        return [f"{skipped:,} images could not be read; {MANIFEST} lists them."] if skipped else []

    def tables(self) -> list[tuple[str, Table]]:
        return [(self.summary, self.table())]

    def table(self) -> Table:
        """One line for the folder."""
        manifest = self.manifest
        counts = {"images": manifest.images, "shards": len(manifest.shards), "unreadable": len(manifest.skipped)}
        cells = {name: f"{count:,}" for name, count in counts.items()} | {"size": decimal(manifest.bytes)}
        return numbers_table({str(self.folder): cells})

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), **self.manifest.to_dict()}


def pack_images(
    images: ImageSource | ImageStream,
    out: Path,
    *,
    size: int,
    quality: int,
    images_per_shard: int,
    workers: int,
    max_skipped: float,
    console: Console,
) -> PackResult:
    """Write images into shards, and a manifest when all are there. The arguments are those of `pack`."""
    asked = {"size": size, "quality": quality, "images_per_shard": images_per_shard}
    settings = {"source": images.name, **identity(images), **asked}
    folder = PackingFolder(out)
    if (complete := folder.finished(settings)) is not None:
        what = f"{complete.images:,} images of {images.name} in {_shards(len(complete.shards))}"
        return PackResult(complete, out, f"{out} is complete: {what}. Nothing was done.")
    folder.begin(settings)
    shards = folder.finished_shards()
    tally = _Tally(images.name, max_skipped)
    for record in shards.values():
        tally.add(record.shard.last - record.shard.first + 1, record.skipped)

    source, length = (None, images.length) if is_stream(images) else (images, len(images))
    problems = [SkippedImage(failure.name, failure.reason) for failure in (source.problems if source else ())]
    packer, batches = Packer(source, size, quality), batches_of(images, images_per_shard, shards.keys())
    remedy = "Then run the same again: finished shards are kept."
    packed = WorkerResults(Computed(packer), batches, workers, remedy)
    counting = Counting(console, "packing", "images", length, done=tally.images)
    with counting as progress, packed.deaths_explained():
        tally.add(len(problems), problems)
        counted = _counted(packed, tally, progress)
        try:
            for first in counted:
                number = first.index // images_per_shard
                shards[number] = write_shard(folder.shard(number), _shard_from(first, counted, images_per_shard))
        except KeyboardInterrupt:
            say(console, f"Interrupted. {len(shards):,} shards are finished; run the same again to go on.")
            raise
    tally.require_enough(at_end=True)
    records = [shards[number] for number in sorted(shards)]
    manifest = Manifest(
        settings=settings,
        classes=images.classes,
        shards=tuple(record.shard for record in records),
        skipped=(*problems, *(skipped for record in records for skipped in record.skipped)),
        version=__version__,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    folder.finish(manifest)
    what = f"{manifest.images:,} images into {_shards(len(records))} in {out} ({decimal(manifest.bytes)})"
    return PackResult(manifest, out, f"Packed {what}.", [out / MANIFEST])


def verify_shards(folder: Path) -> PackResult:
    """Check all shards in a folder. Raises a `UserError` that names those that are damaged."""
    manifest, damaged = damaged_shards(folder)
    if damaged:
        raise UserError(
            f"{len(damaged):,} shards in {folder} are not as they were written: {some_of(damaged)}. Restore them, or "
            "pack the images again."
        )
    return PackResult(manifest, folder, f"All {_shards(len(manifest.shards))} in {folder} are as they were written.")


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
        """Stop if too many cannot be read: the data is broken, not a few files. The first few prove nothing."""
        skipped = len(self.skipped)
        examples = "".join(f" {failure.name}: {failure.reason}." for failure in self.skipped[:3])
        if at_end and skipped == self.images:
            tried = f"none of {skipped} could be read" if skipped else "there are none"
            raise UserError(f"No images to pack in {self.source}: {tried}.{examples} Check its files.")
        if (at_end or skipped > _FEW_SKIPPED) and skipped > self.max_skipped * self.images:
            raise UserError(
                f"{skipped:,} of {self.images:,} images of {self.source} could not be read, more than"
                f" max_skipped={self.max_skipped:g} allows.{examples} Repair or remove them, or run the same again"
                " with a higher max_skipped: finished shards are kept."
            )


def _counted(batches: Iterator[list[PackedImage]], tally: _Tally, progress: Counting) -> Iterator[PackedImage]:
    for batch in batches:
        tally.add(len(batch), [image.skipped for image in batch if image.skipped])
        tally.require_enough()
        progress.add(len(batch), f"{len(tally.skipped):,} unreadable" if tally.skipped else "")
        yield from batch


def _shard_from(first: PackedImage, others: Iterator[PackedImage], images_per_shard: int) -> Iterator[PackedImage]:
    """Up to the last image of the shard and not one more, so that a full shard does not wait for the next."""
    for image in chain((first,), others):
        yield image
        if (image.index + 1) % images_per_shard == 0:
            return


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"
