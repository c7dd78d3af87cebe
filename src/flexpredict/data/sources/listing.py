"""Lists of millions of names and places in a few tensors, and a cache of such lists that notices changes.

Worker processes share tensors, however they are started. A list of Python strings would be copied into each process,
page by page, as soon as reference counts change.
"""

import hashlib
import json
import os
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from flexpredict.data.image_files import UnreadableImage
from flexpredict.errors import UserError
from flexpredict.files import write_atomically

Count = Callable[[int], None]  # is called with the number of images found since the last call

_VERSION = "3"
# A folder that changed this shortly before it was listed may change again within the resolution of its time stamp.
_SETTLED_AFTER = 2.0


@dataclass(eq=False)
class Names:
    """Many names as one tensor of bytes: name i is blob[ends[i]:ends[i + 1]]."""

    blob: Tensor = field(repr=False)  # uint8
    ends: Tensor = field(repr=False)  # N + 1 int64

    @classmethod
    def of(cls, names: Iterable[bytes]) -> "Names":
        builder = NamesBuilder()
        for name in names:
            builder.append(name)
        return builder.build()

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: int) -> str:
        start, stop = self.ends[index : index + 2].tolist()
        return os.fsdecode(self.blob[start:stop].numpy().tobytes())


class NamesBuilder:
    """Collects names, as a list of strings would."""

    def __init__(self) -> None:
        self._blob, self._ends = bytearray(), array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, name: bytes) -> None:
        self._blob += name
        self._ends.append(len(self._blob))

    def build(self) -> Names:
        blob = torch.frombuffer(self._blob, dtype=torch.uint8) if self._blob else torch.empty(0, dtype=torch.uint8)
        return Names(blob, integers(self._ends))


def integers(values: "array[int]") -> Tensor:
    """An array("q") as a tensor, without a copy."""
    return torch.frombuffer(values, dtype=torch.int64) if len(values) else torch.empty(0, dtype=torch.int64)


def columns(rows: "array[int]", /, **types: torch.dtype) -> dict[str, Tensor]:
    """A table that was collected row by row in an array("q"), as a tensor for each column, of the given types."""
    values = integers(rows).view(-1, len(types)).unbind(dim=1)
    return {name: column.to(type).contiguous() for column, (name, type) in zip(values, types.items(), strict=True)}


@dataclass(eq=False)
class Listing:
    """Images that were found, problems, and the files and folders that the listing depends on."""

    tensors: dict[str, Tensor]
    problems: list[UnreadableImage]
    notes: dict[str, Any]
    watched: list[str] = field(default_factory=list)


def cached_listing(kind: str, places: Iterable[str], make: Callable[[], Listing], worth_it: int) -> Listing:
    """The listing of `places`: the cached one if nothing has changed, else a new one.

    Only listings whose tensors have at least `worth_it` entries are cached: others are made anew as quickly.
    """
    path = cache_folder() / "listings" / f"{kind}-{digest([_VERSION, kind, *places])}.safetensors"
    listing = _load(path)
    if listing is not None:
        return listing
    started = time.time()
    listing = make()
    if min((len(tensor) for tensor in listing.tensors.values()), default=0) >= worth_it:
        _save(path, listing, started)
    return listing


def cache_folder() -> Path:
    """The folder for listings and unpacked tables: FLEXPREDICT_CACHE, or a folder in the user's cache."""
    own = os.environ.get("FLEXPREDICT_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "flexpredict"


def state_of(path: str) -> list[int] | None:
    """A value that changes when a file is written, or when something is added to or removed from a folder."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size, status.st_ino]


def _load(path: Path) -> Listing | None:
    try:
        with safe_open(path, framework="pt") as file:
            notes, problems, watched = (
                json.loads(file.metadata()[name]) for name in ("notes", "problems", "watched")
            )
            if any(state_of(place) != state for place, state in watched.items()):
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return Listing(tensors, [UnreadableImage(*problem) for problem in problems], notes, list(watched))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None  # missing or damaged, which does not matter: it is only a cache


def _save(path: Path, listing: Listing, started: float) -> None:
    watched = {place: state_of(place) for place in listing.watched}
    newest = max((state[0] for state in watched.values() if state), default=0) / 1e9
    if None in watched.values() or newest > started - _SETTLED_AFTER:
        return
    problems = [[problem.name, problem.reason] for problem in listing.problems]
    metadata = {"notes": json.dumps(listing.notes), "problems": json.dumps(problems), "watched": json.dumps(watched)}
    tensors = {name: tensor.contiguous() for name, tensor in listing.tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))
    except (OSError, UserError):
        return  # no room or no permission: next time it is made again


def digest_of(array: NDArray[Any]) -> str:
    """A short text that changes with the values of an array."""
    total = hashlib.blake2b(str(array.shape).encode(), digest_size=12)
    total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def digest(parts: Iterable[str]) -> str:
    """A short text that changes with the strings; the same in every process."""
    total = hashlib.blake2b(digest_size=12)
    for part in parts:
        total.update(os.fsencode(part) + b"\0")
    return total.hexdigest()
