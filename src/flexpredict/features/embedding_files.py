"""The files of a finished embedding: their formats, and when they may be written."""

import glob
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flexpredict.errors import UserError, did_you_mean
from flexpredict.features.array_files import beside, write_npy, write_safetensors
from flexpredict.features.joined_parts import JoinedParts, write_lines
from flexpredict.features.table_file import write_parquet


@dataclass(frozen=True)
class _Format:
    write: Callable[[Path, JoinedParts], None]
    beside: tuple[str, ...] = ()  # endings of further files, not all of which are always written


FORMATS = {
    ".parquet": _Format(write_parquet),
    ".npy": _Format(write_npy, (".names.txt", ".json", ".indices.npy", ".labels.npy", ".patches.npy")),
    ".safetensors": _Format(write_safetensors, (".names.txt",)),
}


@dataclass(frozen=True)
class EmbeddingFiles:
    """`path` and the files beside it. `path` is written last: where it exists, all the others do and belong to it."""

    path: Path

    def __post_init__(self) -> None:
        if self.path.suffix not in FORMATS:
            near = did_you_mean(self.path.suffix, FORMATS)
            raise UserError(f"The format of out={self.path} is not known.{near} Use {', '.join(FORMATS)}.")

    @property
    def list_of_skipped(self) -> Path:
        return beside(self.path, ".skipped.txt")

    def possible(self) -> list[Path]:
        """All files that may be written."""
        further = [beside(self.path, suffix) for suffix in FORMATS[self.path.suffix].beside]
        return [self.path, *further, self.list_of_skipped]

    def require_free(self, begun: bool, overwrite: bool) -> None:
        """Refuse to replace files. begun: there are parts, so files beside a missing `path` are our own."""
        if self.path.is_dir():
            raise UserError(f"out={self.path} is a folder. Name a file in it, such as {self.path / 'all.npy'}.")
        there = [file for file in (self.possible()[:1] if begun else self.possible()) if file.exists()]
        if there and not overwrite:
            raise UserError(f"{there[0]} exists already. Replace it with overwrite=true, or choose another out.")

    def write(self, joined: JoinedParts) -> list[Path]:
        """Join the parts, and return the files that were written."""
        for file in self.possible():
            file.unlink(missing_ok=True)  # `path` first: from here on no old file is taken for a new one
            for leftover in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
                leftover.unlink()  # of a process that was killed while it joined
        if joined.count_skipped():
            write_lines(self.list_of_skipped, map(str, joined.skipped()))
        FORMATS[self.path.suffix].write(self.path, joined)
        return [file for file in self.possible() if file.exists()]

    def passes(self, joined: JoinedParts) -> int:
        """How often all parts are read, for the progress."""
        return 1 if self.path.suffix == ".parquet" else 1 + len(joined.tensors())
