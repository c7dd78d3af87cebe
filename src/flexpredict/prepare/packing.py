"""Packs images into shards.

Images keep their order and their number: shard k holds the images k * n to (k + 1) * n - 1, apart from those that
could not be read. Worker processes decode and encode, a few images at a time; this process reads streams, and writes.
A finished shard has a record beside it, so an interrupted run does not make it again.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from flexpredict import __version__
from flexpredict.cores import cores
from flexpredict.data.image_files import UnreadableImage
from flexpredict.data.passes import one_pass
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import MANIFEST, PACKING_SETTINGS, Manifest, SkippedImage, damaged_shards
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import ImageStream, identity
from flexpredict.errors import UserError, some_of
from flexpredict.files import remove_half_written, write_json_atomically
from flexpredict.prepare.pack import PackSettings
from flexpredict.prepare.shard_writing import ShardRecord, pack_image, write_shard
from flexpredict.progress import Counting
from flexpredict.same_settings import read_settings, require_own_folder, require_same_settings
from flexpredict.showing import numbers_table, say

_FEW_SKIPPED = 20
# Enough that handing them over costs little; few enough that a small set keeps all workers busy and that Ctrl-C is
# obeyed at once.
_IMAGES_AT_ONCE = 16
_Packed: TypeAlias = tuple[int, bytes | UnreadableImage]  # number of an image, and its members of a tar file


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


class PackingFolder:
    """The folder of the shards, and of the records of an interrupted run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / PACKING_SETTINGS

    def shard(self, number: int) -> Path:
        return self.path / f"shard-{number:06d}.tar"

    def require_ours(self) -> None:
        """Refuse a file, and a folder that holds anything but packed shards."""
        if Manifest.load(self.path) is None:
            remedy = "Name a folder for the shards that is empty or does not exist yet."
            require_own_folder(self.settings, "pack", remedy)

    def finished(self, settings: dict[str, Any]) -> Manifest | None:
        """The manifest, if everything is packed. Refuses other settings than those of the manifest."""
        manifest = Manifest.load(self.path)
        if manifest is not None:
            remedy = "Use it as it is, or name another folder for these settings."
            require_same_settings(self.path, manifest.settings, settings, remedy)
            self._tidy()
        return manifest

    def begin(self, settings: dict[str, Any]) -> None:
        """Record the settings, or check that existing shards were made with the same."""
        if not self.settings.is_file():
            write_json_atomically(self.settings, settings)
            return
        remedy = f"Use the same settings again, pack into another folder, or delete {self.path} to begin again."
        require_same_settings(self.path, read_settings(self.settings, remedy), settings, remedy)

    def finished_shards(self) -> dict[int, ShardRecord]:
        """Records by number, without shards whose length is not the recorded one: they are made again."""
        numbers = sorted(int(path.stem.removeprefix("shard-")) for path in self.path.glob("shard-[0-9]*.json"))
        records = ((number, ShardRecord.load(self.shard(number))) for number in numbers)
        return {number: record for number, record in records if record is not None}

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which replaces the records of the shards."""
        manifest.save(self.path)
        self._tidy()

    def _tidy(self) -> None:
        remove_half_written(self.path)
        for pattern in ("shard-*.json", PACKING_SETTINGS):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)


def pack_images(images: ImageSource | ImageStream, out: Path, asked: PackSettings, console: Console) -> PackResult:
    """Write images into shards, and a manifest when all are there."""
    how = {name: getattr(asked, name) for name in ("size", "quality", "images_per_shard")}
    settings = {"source": images.name, **identity(images), **how}
    folder = PackingFolder(out)
    if (complete := folder.finished(settings)) is not None:
        what = f"{complete.images:,} images of {images.name} in {_shards(len(complete.shards))}"
        return PackResult(complete, out, f"{out} is complete: {what}. Nothing was done.")
    folder.begin(settings)
    shards = folder.finished_shards()
    tally = _Tally(images.name, asked.max_skipped)
    for record in shards.values():
        tally.add(record.shard.last - record.shard.first + 1, record.skipped)

    listed, length = ([], images.length) if is_stream(images) else (images.problems, len(images))
    problems = [SkippedImage(failure.name, failure.reason) for failure in listed]
    packed = one_pass(
        images,
        partial(pack_image, size=asked.size, quality=asked.quality),
        cores() if asked.workers is None else asked.workers,
        at_once=_IMAGES_AT_ONCE,
        section=asked.images_per_shard,
        finished=frozenset(shards),
        remedy="Then run the same again: finished shards are kept.",
    )
    counting = Counting(console, "packing", "images", length, done=tally.images)
    with counting as progress, packed.deaths_explained():
        tally.add(len(problems), problems)
        counted = _counted(packed, tally, progress)
        try:
            for first in counted:
                number = first[0] // asked.images_per_shard
                shard = _shard_from(first, counted, asked.images_per_shard)
                shards[number] = write_shard(folder.shard(number), shard)
        except KeyboardInterrupt:
            say(console, f"Interrupted. {len(shards):,} shards are finished; run the same again to continue.")
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
    """Check all shards in a folder. Raises a `UserError` that names the damaged ones."""
    manifest, damaged = damaged_shards(folder)
    if damaged:
        raise UserError(
            f"{len(damaged):,} shards in {folder} are not as they were written: {some_of(damaged)}. Restore them, or "
            "pack the images again."
        )
    return PackResult(manifest, folder, f"All {_shards(len(manifest.shards))} in {folder} are as they were written.")


@dataclass
class _Tally:
    """The number of images so far, and the unreadable ones."""

    source: str
    max_skipped: float
    images: int = 0
    skipped: list[SkippedImage | UnreadableImage] = field(default_factory=list)

    def add(self, images: int, skipped: Collection[SkippedImage | UnreadableImage]) -> None:
        self.images += images
        self.skipped += skipped

    def require_enough(self, at_end: bool = False) -> None:
        """Raise a `UserError` if too many images are unreadable; before the end, a few are always tolerated."""
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


def _counted(batches: Iterator[list[_Packed]], tally: _Tally, progress: Counting) -> Iterator[_Packed]:
    for batch in batches:
        tally.add(len(batch), [found for _, found in batch if isinstance(found, UnreadableImage)])
        tally.require_enough()
        progress.add(len(batch), f"{len(tally.skipped):,} unreadable" if tally.skipped else "")
        yield from batch


def _shard_from(first: _Packed, others: Iterator[_Packed], images_per_shard: int) -> Iterator[_Packed]:
    """The images of one shard; stops right after the last one, so that a full shard need not wait for the next."""
    for index, packed in chain((first,), others):
        yield index, packed
        if (index + 1) % images_per_shard == 0:
            return


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"
