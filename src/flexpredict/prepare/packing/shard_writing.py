"""Writes shards: tar files whose bytes depend only on their images."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from flexpredict.data.decoding import Encoded, ImageFacts, UnreadableImage, image_facts, upright
from flexpredict.data.sources.manifest import Shard, SkippedImage
from flexpredict.files import write_atomically, write_text_atomically

_TAR_BLOCK, _TAR_RECORD = 512, 10240
_ROOM_FOR_EXIF = 2**16


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


def pack_image(index: int, encoded: Encoded, name: str, label: int | None, size: int, quality: int) -> PackedImage:
    """Shrunk to a shorter side of `size` (never enlarged), 8-bit RGB, upright, as a JPEG.

    A file that already is such a JPEG, in color or grayscale, is copied byte for byte, so that it loses nothing.
    Raises UnreadableImage.
    """
    facts = image_facts(encoded, name)
    # A file that is copied is decoded too: only that shows that it is whole.
    image = upright(encoded, name, shorter_side=size)
    jpeg = _as_stored(encoded, facts, size) or _jpeg(image, name, quality)
    members = _member(f"{index:09d}.jpg", jpeg)
    if label is not None:
        members += _member(f"{index:09d}.cls", str(label).encode())
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


def _as_stored(encoded: Encoded, facts: ImageFacts, size: int) -> bytes | None:
    """The bytes of a file that can go into a shard unchanged."""
    small_jpeg = facts.format == "JPEG" and facts.mode in ("RGB", "L") and min(facts.height, facts.width) <= size
    if isinstance(encoded, np.ndarray) or not small_jpeg:
        return None
    try:
        with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded, formats=("JPEG",)) as image:
            if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
                return None
        length = len(encoded) if isinstance(encoded, bytes) else Path(encoded).stat().st_size
        # More bytes than pixels: the file holds something else too, such as a video behind the picture.
        if length > 3 * facts.height * facts.width + _ROOM_FOR_EXIF:
            return None
        return encoded if isinstance(encoded, bytes) else Path(encoded).read_bytes()
    except Exception:
        # EXIF that cannot be read: another reader may find an orientation in it, so it is not passed on.
        return None


def _jpeg(image: Image.Image, name: str, quality: int) -> bytes:
    file = io.BytesIO()
    try:
        image.save(file, "JPEG", quality=quality, subsampling="4:2:0")
    except (OSError, ValueError) as error:
        # A strip longer than the 65,500 pixels that JPEG allows.
        height, width = image.height, image.width
        raise UnreadableImage(name, f"cannot be a JPEG of {height} x {width} pixels: {error}") from error
    return file.getvalue()
