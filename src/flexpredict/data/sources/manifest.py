"""The manifest of a folder of packed shards: what is in it, and whether it is undamaged."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError
from flexpredict.files import sha256_of, write_json_atomically

MANIFEST = "manifest.json"
PACKING_SETTINGS = "pack.json"  # there while packing is not finished
_FORMAT, _VERSION = "flexpredict shards", 1


@dataclass(frozen=True)
class Shard:
    """One tar file."""

    name: str
    images: int
    bytes: int
    sha256: str
    first: int  # first and last image of the source that belong here, readable or not
    last: int


@dataclass(frozen=True)
class SkippedImage:
    """An image of the source that could not be read, and is in no shard."""

    name: str
    reason: str


@dataclass(frozen=True)
class Manifest:
    """A finished set of shards: what it was made from, how, and what is in it."""

    settings: dict[str, Any]  # source and number of images, size, quality, images per shard
    classes: tuple[str, ...] | None
    shards: tuple[Shard, ...]
    skipped: tuple[SkippedImage, ...]
    version: str  # of flexpredict
    date: str

    @property
    def images(self) -> int:
        return sum(shard.images for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    def to_dict(self) -> dict[str, Any]:
        head = {"format": _FORMAT, "format_version": _VERSION}
        totals = {"images": self.images, "bytes": self.bytes, "skipped_images": len(self.skipped)}
        return {**head, **totals, **asdict(self)}

    def save(self, folder: Path) -> None:
        write_json_atomically(folder / MANIFEST, self.to_dict())

    @classmethod
    def load(cls, folder: Path) -> "Manifest | None":
        """Load the manifest; None if the folder is no finished set of shards; others write a manifest.json too."""
        path = folder / MANIFEST
        try:
            content: Any = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            return None
        if content.get("format_version") != _VERSION:
            raise UserError(
                f"{path} has format_version {content.get('format_version')}, but this flexpredict reads {_VERSION}."
                " Use a newer flexpredict, or pack the images again."
            )
        try:
            return cls(
                content["settings"],
                None if content["classes"] is None else tuple(content["classes"]),
                tuple(Shard(**shard) for shard in content["shards"]),
                tuple(SkippedImage(**skipped) for skipped in content["skipped"]),
                content["version"],
                content["date"],
            )
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({type(error).__name__}: {error}). Restore it from a copy, or move it away: the"
                " shards can be read without it, but their classes have no names then."
            ) from error


def damaged_shards(folder: Path) -> tuple[Manifest, list[str]]:
    """The manifest, and a description of each shard that differs from it. Reads all shards."""
    manifest = Manifest.load(folder)
    if manifest is None:
        raise UserError(
            f"{folder} is not a finished set of packed shards: it has no {MANIFEST} of flexpredict. Name the folder"
            " that `flexpredict pack` wrote; if that was interrupted, run it again."
        )
    problems = [problem for shard in manifest.shards if (problem := _problem(folder / shard.name, shard))]
    others = {path.name for path in folder.glob("*.tar")} - {shard.name for shard in manifest.shards}
    return manifest, problems + [f"{folder / name}: not in the manifest" for name in sorted(others)]


def _problem(path: Path, shard: Shard) -> str | None:
    try:
        size = path.stat().st_size
        if size != shard.bytes:
            return f"{path}: {size:,} bytes instead of {shard.bytes:,}"
        same = sha256_of(path) == shard.sha256
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None if same else f"{path}: its content has changed (other SHA-256)"
