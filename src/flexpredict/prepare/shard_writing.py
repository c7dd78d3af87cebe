"""Writes shards: tar files whose bytes depend only on their images."""

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from PIL import Image

from flexpredict.data.decoding import ImageFacts, UnreadableImage, image_facts, upright
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.data.sources.manifest import Shard, SkippedImage
from flexpredict.data.sources.streams import Entry, ImageStream, all_entries, in_chunks, is_stream
from flexpredict.data.workers import set_current_image
from flexpredict.files import write_atomically, write_text_atomically

_TAR_BLOCK, _TAR_RECORD = 512, 10240
_ROOM_FOR_EXIF = 2**16
# Numbers of images, which the worker reads from the source; or entries of a stream.
Batch: TypeAlias = range | list[Entry]
# Enough images in a batch that handing them over costs little, few enough that a small set keeps all workers busy and
# that Ctrl-C is obeyed at once. Records of a stream are sent to the worker, hence their limit.
_IMAGES_AT_ONCE = 16
_BYTES_AT_ONCE = 4 * 2**20


@dataclass(frozen=True)
class PackedImage:
    """An image as the members of a tar file. Workers make these bytes; the process that writes has little to do."""

    index: int  # in the source
    members: bytes = b""
    skipped: SkippedImage | None = None  # if it could not be read


@dataclass(frozen=True)
class ShardRecord:
    """A finished shard, and the images that are missing from it."""

    shard: Shard
    skipped: tuple[SkippedImage, ...]

    @classmethod
    def load(cls, path: Path) -> "ShardRecord | None":
        """The record of the shard at `path`; None if it is not finished or no longer has that length."""
        try:
            content = json.loads(path.with_suffix(".json").read_bytes())
            if path.stat().st_size != content["shard"]["bytes"]:
                return None
            return cls(Shard(**content["shard"]), tuple(SkippedImage(**skipped) for skipped in content["skipped"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def pack_image(index: int, record: Record, size: int, quality: int) -> PackedImage:
    """Shrunk to a shorter side of `size` (never enlarged), 8-bit RGB, upright, as a JPEG.

    A file that already is such a JPEG, in color or grayscale, is copied byte for byte, so that it loses nothing.
    Raises UnreadableImage.
    """
    name = record.name
    facts = image_facts(record.encoded, name)
    # A file that is copied is decoded too: only that shows that it is whole.
    image = upright(record.encoded, name, shorter_side=size)
    jpeg = _as_stored(record, facts, size) or _jpeg(image, name, quality)
    members = _member(f"{index:09d}.jpg", jpeg)
    if record.label is not None:
        members += _member(f"{index:09d}.cls", str(record.label).encode())
    original = {"path": name, "height": facts.height, "width": facts.width}
    return PackedImage(index, members + _member(f"{index:09d}.json", json.dumps(original).encode()))


def write_shard(path: Path, images: Iterable[PackedImage]) -> ShardRecord:
    """Fill a shard with successive images of the source; then write the record beside it that says it is finished."""
    digest = hashlib.sha256()
    skipped: list[SkippedImage] = []
    indices: list[int] = []

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for image in images:
                indices.append(image.index)
                skipped.extend([image.skipped] if image.skipped else [])
                digest.update(image.members)
                file.write(image.members)
            end = 2 * _TAR_BLOCK
            padding = bytes(end + -(file.tell() + end) % _TAR_RECORD)
            digest.update(padding)
            file.write(padding)

    write_atomically(path, fill)
    readable, length = len(indices) - len(skipped), path.stat().st_size
    shard = Shard(path.name, readable, length, digest.hexdigest(), first=indices[0], last=indices[-1])
    record = ShardRecord(shard, tuple(skipped))
    write_text_atomically(path.with_suffix(".json"), json.dumps(asdict(record)) + "\n")
    return record


def _member(name: str, content: bytes) -> bytes:
    # Time, owner and group of a new TarInfo are 0 and nobody's: the same images make the same bytes.
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % _TAR_BLOCK)


def _as_stored(record: Record, facts: ImageFacts, size: int) -> bytes | None:
    """The bytes of a file that can go into a shard unchanged."""
    if facts.format != "JPEG" or facts.mode not in ("RGB", "L") or min(facts.height, facts.width) > size:
        return None
    if facts.orientation != 1:
        return None  # Nor if EXIF cannot be read: another reader may find an orientation in it.
    content = record.content()
    # More bytes than pixels: the file holds something else too, such as a video behind the picture.
    most = 3 * facts.height * facts.width + _ROOM_FOR_EXIF
    return content if isinstance(content, bytes) and len(content) <= most else None


def _jpeg(image: Image.Image, name: str, quality: int) -> bytes:
    file = io.BytesIO()
    try:
        image.save(file, "JPEG", quality=quality, subsampling="4:2:0")
    except (OSError, ValueError) as error:
        # A strip longer than the 65,500 pixels that JPEG allows.
        height, width = image.height, image.width
        raise UnreadableImage(name, f"cannot be a JPEG of {height} x {width} pixels: {error}") from error
    return file.getvalue()


@dataclass(frozen=True)
class Packer:
    """Makes the members of a shard from images. `source` is None where the batches hold the records of a stream."""

    source: ImageSource | None = field(repr=False)
    size: int
    quality: int

    def __call__(self, batch: Batch) -> list[PackedImage]:
        if isinstance(batch, range):
            assert self.source is not None
            return [self._pack(index, self.source.record(index)) for index in batch]
        return [self._pack(index, record) for index, record in batch]

    def _pack(self, index: int, record: Record | UnreadableImage) -> PackedImage:
        set_current_image(record.name)
        try:
            if isinstance(record, UnreadableImage):
                raise record
            return pack_image(index, record, self.size, self.quality)
        except UnreadableImage as failure:
            return PackedImage(index, skipped=SkippedImage(failure.name, failure.reason))
        finally:
            set_current_image("")


def batches_of(
    images: ImageSource | ImageStream, images_per_shard: int, finished: Collection[int]
) -> Iterator[Batch]:
    """All images in order, except those of finished shards. No batch reaches into the next shard."""
    if is_stream(images):
        for number, entries in groupby(all_entries(images), key=lambda entry: entry[0] // images_per_shard):
            if number not in finished:
                yield from in_chunks(entries, _IMAGES_AT_ONCE, _BYTES_AT_ONCE)
        return
    for number, start in enumerate(range(0, len(images), images_per_shard)):
        if number not in finished:
            shard = range(start, min(start + images_per_shard, len(images)))
            yield from (shard[first : first + _IMAGES_AT_ONCE] for first in range(0, len(shard), _IMAGES_AT_ONCE))
