"""The files that an embedding ends in: their formats, and when they may be written."""

import glob
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flexpredict.errors import UserError, did_you_mean
from flexpredict.features.array_files import beside, write_npy, write_safetensors
from flexpredict.features.collection import Collection, write_lines
from flexpredict.features.table_file import require_pyarrow, write_parquet


@dataclass(frozen=True)
class _Format:
    write: Callable[[Path, Collection], None]
    beside: tuple[str, ...] = ()  # suffixes of further files, not all of which are always written


FORMATS = {
    ".parquet": _Format(write_parquet),
    ".npy": _Format(write_npy, (".names.txt", ".json", ".indices.npy", ".labels.npy", ".patches.npy")),
    ".safetensors": _Format(write_safetensors, (".names.txt",)),
}


@dataclass(frozen=True)
class Output:
    """`path` and what stands beside it. Where `path` is, all is there and belongs together."""

    path: Path

    def __post_init__(self) -> None:
        if self.path.suffix not in FORMATS:
            near = did_you_mean(self.path.suffix, FORMATS)
            raise UserError(f"--out {self.path} is none of the known formats.{near} Use {', '.join(FORMATS)}.")
        if self.path.suffix == ".parquet":
            require_pyarrow()

    @property
    def list_of_skipped(self) -> Path:
        return beside(self.path, ".skipped.txt")

    def files(self) -> list[Path]:
        """All that may be written."""
        further = [beside(self.path, suffix) for suffix in FORMATS[self.path.suffix].beside]
        return [self.path, *further, self.list_of_skipped]

    def require_room(self, begun: bool, overwrite: bool) -> None:
        """Refuse to replace files; but those beside `path` are our own if there are parts and `path` is missing."""
        there = [file for file in (self.files()[:1] if begun else self.files()) if file.exists()]
        if there and not overwrite:
            raise UserError(f"{there[0]} exists already. Replace it with --overwrite, or name another --out.")
        if self.path.is_dir():
            raise UserError(f"--out {self.path} is a folder. Name a file in it, such as {self.path / 'all.npy'}.")

    def write(self, collection: Collection) -> list[Path]:
        """Join the parts; says what was written."""
        for file in self.files():
            file.unlink(missing_ok=True)  # `path` first: from here on nothing old is taken for new
            for leftover in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
                leftover.unlink()  # of a process that was killed while it joined
        if collection.count_skipped():
            write_lines(self.list_of_skipped, map(str, collection.skipped()))
        FORMATS[self.path.suffix].write(self.path, collection)
        return [file for file in self.files() if file.exists()]

    def passes(self, collection: Collection) -> int:
        """How often the parts are gone through, for progress."""
        return 1 if self.path.suffix == ".parquet" else 1 + len(collection.shapes())
