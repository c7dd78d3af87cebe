"""Writes shards: tar files whose bytes depend only on their images."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from flexpredict.data.decoding import ImageFacts, UnreadableImage, image_facts, upright
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.manifest import Shard, SkippedImage
from flexpredict.files import write_atomically, write_text_atomically

_TAR_BLOCK, _TAR_RECORD = 512, 10240
_ROOM_FOR_EXIF = 2**16


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


def pack_image(index: int, record: Record, size: int, quality: int) -> bytes:
    """The members of a tar file for one image, made by workers to leave the writing process little to do.

    The image becomes an upright 8-bit RGB JPEG, shrunk to a shorter side of `size` (never enlarged). A file that is
    such a JPEG already, in color or grayscale, is copied byte for byte. Raises UnreadableImage.
    """
    facts = image_facts(record.encoded, record.name)
    # A file that is copied is decoded too: only that shows that it is whole.
    image = upright(record.encoded, record.name, shorter_side=size)
    members = _member(f"{index:09d}.jpg", _as_stored(record, facts, size) or _jpeg(image, record.name, quality))
    if record.label is not None:
        members += _member(f"{index:09d}.cls", str(record.label).encode())
    original = {"path": record.name, "height": facts.height, "width": facts.width}
    return members + _member(f"{index:09d}.json", json.dumps(original).encode())


def write_shard(path: Path, images: Iterable[tuple[int, bytes | UnreadableImage]]) -> ShardRecord:
    """Fill a shard with successive images of the source; then write a record beside it that marks it as finished."""
    digest = hashlib.sha256()
    skipped: list[SkippedImage] = []
    indices: list[int] = []

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for index, packed in images:
                indices.append(index)
                if isinstance(packed, UnreadableImage):
                    skipped.append(SkippedImage(packed.name, packed.reason))
                    continue
                digest.update(packed)
                file.write(packed)
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
