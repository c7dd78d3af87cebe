"""Parts of an embedding on the disk: what is done so far, and with which encoder, settings and images."""

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
from flexpredict.data.sources.listing import Names, NamesBuilder
from flexpredict.errors import UserError
from flexpredict.files import write_atomically, write_text_atomically

_STATE = "state.json"


@dataclass(eq=False)
class Part:
    """Some images in a row."""

    features: Tensor  # n D float32
    indices: Tensor  # n int64, of the images in their source
    labels: Tensor  # n int64, -1 where an image has none
    names: list[str] = field(repr=False)
    skipped: list[UnreadableImage] = field(repr=False)
    patches: Tensor | None = None  # n P D


@dataclass(frozen=True)
class StoredPart:
    """A finished part, of which no more is read than is asked for."""

    path: Path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Its rows, whether any has a label, and how many images were skipped."""
        with self._opened() as file:
            return dict(json.loads(file.metadata()["facts"]))

    def images(self) -> int:
        """With those that could not be read."""
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
        """Without reading it: the file knows how long it should be."""
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
                f"{self.path} is gone since it was made: {error}. Run the same again; if several machines share the "
                "work, write to a folder that all of them see."
            ) from error


@dataclass(frozen=True)
class PartsFolder:
    """The folder OUT.parts."""

    path: Path

    def is_begun(self) -> bool:
        return (self.path / _STATE).is_file()

    def begin(self, settings: dict[str, Any], overwrite: bool) -> None:
        """Note how parts are made; or make sure that those there were made in the same way."""
        if not self.is_begun():
            self._require_nothing_of_others()
        elif differences := self._differences(settings):
            if not overwrite:
                raise UserError(
                    f"{self.path} was begun with {differences}. Go on as it was begun, write to another file, or "
                    "begin anew with --overwrite."
                )
            self.remove()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.glob(".*.tmp"):
                leftover.unlink()
            write_text_atomically(self.path / _STATE, json.dumps(settings, indent=1) + "\n")
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}. Name another --out.") from error

    def finished(self) -> set[int]:
        """The numbers of the parts that are whole."""
        numbers = (int(path.stem.removeprefix("part-")) for path in self.path.glob("part-*.safetensors"))
        return {number for number in numbers if self.stored(number).is_whole()}

    def stored(self, number: int) -> StoredPart:
        return StoredPart(self.path / f"part-{number:09d}.safetensors")

    def save(self, number: int, part: Part) -> None:
        names = NamesBuilder()
        for name in part.names:
            names.append(os.fsencode(name))
        built = names.build()
        tensors = {"features": part.features, "indices": part.indices, "labels": part.labels}
        tensors |= {"names": built.blob, "name_ends": built.ends}
        tensors |= {} if part.patches is None else {"patches": part.patches}
        labelled = bool((part.labels >= 0).any())
        facts = {"rows": len(part.names), "labelled": labelled, "skipped": len(part.skipped)}
        skipped = [[failure.name, failure.reason] for failure in part.skipped]
        metadata = {"facts": json.dumps(facts), "skipped": json.dumps(skipped)}
        with self.kept():
            write_atomically(self.stored(number).path, lambda path: save_file(tensors, path, metadata))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around what is written: when that fails, say that the work is not lost."""
        kept = f"Finished parts are kept in {self.path}"
        try:
            yield
        except UserError as error:
            raise UserError(f"{error} {kept}.") from error
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise UserError(
                f"Writing beside {self.path} failed: {reason}. Check that the folder can be written to. {kept}: "
                "run the same again to go on."
            ) from error

    def remove(self) -> None:
        """What was made here and nothing else."""
        for pattern in ("part-*.safetensors", ".*.tmp", _STATE):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def _require_nothing_of_others(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}, where parts are to be kept, is a file. Move it away.")
        # A process that was killed early may have left the settings under their temporary name.
        strangers = [entry for entry in self.path.glob("*") if not entry.name.startswith(f".{_STATE}.")]
        if strangers:
            raise UserError(
                f"{self.path}, where parts are to be kept, holds {min(strangers).name} and was not begun by "
                "`flexpredict embed`. Move it away, or name another --out."
            )

    def _differences(self, settings: dict[str, Any]) -> str:
        try:
            before = dict(json.loads((self.path / _STATE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return f"settings that cannot be read any more ({self.path / _STATE} is damaged)"
        return ", ".join(
            f"{name} {before.get(name)} (now {value})"
            for name, value in settings.items()
            if before.get(name) != value
        )
