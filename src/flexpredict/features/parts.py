"""A folder of parts: features of a few thousand images each, every part complete or absent.

Interrupted work continues after the last part, several processes make parts independently of each other, and no more
than one part is in memory.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.listing import Names
from flexpredict.errors import UserError, in_a_line
from flexpredict.files import remove_half_written, write_atomically, write_json_atomically
from flexpredict.same_settings import changed_settings, read_settings, require_own_folder, require_same_settings

_STATE = "state.json"
# Limits of what an interruption can lose, and of what is in memory.
_MOST_IMAGES = 2048
_MOST_BYTES = 128 * 2**20
_USUAL_BATCH = 64


def images_in_part(bytes_per_image: int) -> int:
    """The number of images in a part: fewer if they have many features, and in full batches if these fit."""
    fitting = min(_MOST_IMAGES, max(1, _MOST_BYTES // max(1, bytes_per_image)))
    return fitting - fitting % _USUAL_BATCH if fitting > _USUAL_BATCH else fitting


@dataclass(eq=False)
class Part:
    """Consecutive images of a source or stream."""

    features: Tensor  # n D float32
    indices: Tensor  # n int64, of the images in their source
    labels: Tensor  # n int64, -1 where an image has none
    names: list[str] = field(repr=False)
    skipped: list[UnreadableImage] = field(repr=False)
    patches: Tensor | None = None  # n P D


@dataclass(frozen=True)
class StoredPart:
    """A finished part on disk; only what is asked for is read."""

    path: Path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """rows: its number of images; labeled: whether any has a label; skipped: how many could not be read."""
        with self._opened() as file:
            return dict(json.loads(file.metadata()["facts"]))

    def images(self) -> int:
        """The number of images, including those that could not be read."""
        return int(self.facts["rows"]) + int(self.facts["skipped"])

    def tensor(self, name: str) -> Tensor:
        with self._opened() as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor

    def names(self) -> list[str]:
        names = Names(self.tensor("names"), self.tensor("name_ends"))
        return [names[row] for row in range(len(names))]

    def skipped(self) -> list[UnreadableImage]:
        with self._opened() as file:
            return [UnreadableImage(*failure) for failure in json.loads(file.metadata()["skipped"])]

    def is_whole(self) -> bool:
        """Whether the file is complete, judged by its header."""
        try:
            with safe_open(self.path, framework="pt"):
                return True
        except (OSError, SafetensorError):
            return False

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with safe_open(self.path, framework="pt") as file:
                yield file
        except (OSError, SafetensorError) as error:
            raise UserError(
                f"{self.path} was written but can no longer be read: {error}. Run the command again. If several "
                "machines share the work, they must share this folder (FLEXPREDICT_CACHE sets that of the cache)."
            ) from error


@dataclass(frozen=True)
class PartsFolder:
    """Parts that belong together: same encoder, settings and images."""

    path: Path

    def is_begun(self) -> bool:
        return (self.path / _STATE).is_file()

    def begin(self, settings: dict[str, Any], overwrite: bool = False) -> None:
        """Record the settings, or refuse them if existing parts were made with others."""
        require_own_folder(self.path / _STATE, "embed", "Move it away, or choose another out.")
        if self.is_begun():
            self._require_same(settings, overwrite)
        remove_half_written(self.path)
        write_json_atomically(self.path / _STATE, settings)

    def finished(self) -> set[int]:
        """Numbers of the parts that are whole."""
        numbers = (int(path.stem.removeprefix("part-")) for path in self.path.glob("part-*.safetensors"))
        return {number for number in numbers if self.stored(number).is_whole()}

    def stored(self, number: int) -> StoredPart:
        return StoredPart(self.path / f"part-{number:09d}.safetensors")

    def save(self, number: int, part: Part) -> None:
        names = Names.of(map(os.fsencode, part.names))
        tensors = {"features": part.features, "indices": part.indices, "labels": part.labels}
        tensors |= {"names": names.blob, "name_ends": names.ends}
        tensors |= {} if part.patches is None else {"patches": part.patches}
        labeled = bool((part.labels >= 0).any())
        facts = {"rows": len(part.names), "labeled": labeled, "skipped": len(part.skipped)}
        skipped = [[failure.name, failure.reason] for failure in part.skipped]
        metadata = {"facts": json.dumps(facts), "skipped": json.dumps(skipped)}
        with self.kept():
            write_atomically(self.stored(number).path, lambda path: save_file(tensors, path, metadata))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """If writing fails, add to the error that finished parts are kept."""
        try:
            yield
        except (UserError, OSError, SafetensorError) as error:
            raise UserError(f"{in_a_line(error)} Finished parts are kept in {self.path}.") from error

    def remove(self) -> None:
        """Delete what was made here, and nothing else."""
        remove_half_written(self.path)
        for pattern in ("part-*.safetensors", _STATE):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def _require_same(self, settings: dict[str, Any], overwrite: bool) -> None:
        remedy = "Use the same settings again, write to another file, or start again with overwrite=true."
        try:
            before = read_settings(self.path / _STATE, remedy)
        except UserError:
            if not overwrite:
                raise
            before = {}
        if not overwrite:
            require_same_settings(self.path, before, settings, remedy)
        elif changed_settings(before, settings):
            self.remove()
