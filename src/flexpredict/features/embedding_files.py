"""The files of a finished embedding: joins all parts, writes each format, and protects existing files."""

import glob
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from pyarrow.parquet import ParquetWriter

from flexpredict.data.decoding import UnreadableImage
from flexpredict.errors import UserError, did_you_mean
from flexpredict.features.encoding import FeatureShape
from flexpredict.features.parts import StoredPart
from flexpredict.files import write_atomically, write_lines_atomically, write_text_atomically

_SAFETENSORS_TYPES = {"int64": "I64", "float32": "F32", "float16": "F16"}


@dataclass(frozen=True)
class JoinedParts:
    """The content of the final file; no more than one part is in memory."""

    parts: list[StoredPart] = field(repr=False)  # in order
    shape: FeatureShape
    classes: tuple[str, ...] | None = field(repr=False)  # names of the labels
    problems: list[UnreadableImage] = field(repr=False)  # files that could not be listed
    facts: dict[str, Any] = field(repr=False)  # encoder, settings and data, stored in the file
    advance: Callable[[int], None] = field(default=lambda count: None, repr=False)  # called after each part

    def rows(self) -> int:
        return sum(int(part.facts["rows"]) for part in self.parts)

    def has_labels(self) -> bool:
        return any(part.facts["labeled"] for part in self.parts)

    def count_skipped(self) -> int:
        return len(self.problems) + sum(int(part.facts["skipped"]) for part in self.parts)

    def skipped(self) -> Iterator[UnreadableImage]:
        yield from self.problems
        for part in self.parts:
            yield from part.skipped()

    def tensors(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each tensor, those with the widest numbers first."""
        rows, shape = self.rows(), self.shape
        tensors: dict[str, tuple[tuple[int, ...], str]] = {"indices": ((rows,), "int64")}
        if self.has_labels():
            tensors["labels"] = ((rows,), "int64")
        tensors["features"] = ((rows, shape.dim), "float32")
        if shape.patch_type is not None:
            tensors["patches"] = ((rows, shape.patches, shape.patch_dim), shape.patch_type)
        return tensors

    def described(self) -> str:
        """The facts as JSON, with the names of the classes where there are labels."""
        classes = {"classes": self.classes} if self.has_labels() and self.classes else {}
        return json.dumps(self.facts | {"images": self.rows(), "skipped": self.count_skipped()} | classes)

    def each(self) -> Iterator[StoredPart]:
        """One part after the other."""
        for part in self.parts:
            yield part
            self.advance(1)


@dataclass(frozen=True)
class EmbeddingFiles:
    """`path` and the files beside it. `path` is written last: if it exists, the others do too and belong to it."""

    path: Path

    def __post_init__(self) -> None:
        if self.path.suffix not in FORMATS:
            near = did_you_mean(self.path.suffix, FORMATS)
            raise UserError(f"The format of out={self.path} is not known.{near} Use {', '.join(FORMATS)}.")

    def possible(self) -> list[Path]:
        """All files that may be written."""
        _, endings = FORMATS[self.path.suffix]
        return [self.path, *(beside(self.path, ending) for ending in (*endings, ".skipped.txt"))]

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
            file.unlink(missing_ok=True)  # `path` first, so that no old file is taken for a new one
            for leftover in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
                leftover.unlink()  # of a process that was killed while joining
        if joined.count_skipped():
            write_lines_atomically(self.possible()[-1], (_one_line(str(failure)) for failure in joined.skipped()))
        write, _ = FORMATS[self.path.suffix]
        write(self.path, joined)
        return [file for file in self.possible() if file.exists()]

    def passes(self, joined: JoinedParts) -> int:
        """How often all parts are read, for the progress bar."""
        return 1 if self.path.suffix == ".parquet" else 1 + len(joined.tensors())


def beside(path: Path, ending: str) -> Path:
    """A further file of the same embedding: features.npy.names.txt.

    It begins with the whole name, so that features.npy and features.safetensors each have their own.
    """
    return path.with_name(path.name + ending)


def write_npy(path: Path, joined: JoinedParts) -> None:
    _write_names(path, joined)
    write_text_atomically(beside(path, ".json"), joined.described() + "\n")

    def write(name: str, temporary: Path) -> None:
        shape, dtype = joined.tensors()[name]
        # Broadcasting gives the header of an array of this shape and type without its memory. A memory map would kill
        # the process when the disk is full.
        header = npy.header_data_from_array_1_0(np.broadcast_to(np.zeros((), dtype), shape))
        with temporary.open("wb") as file:
            npy.write_array_header_1_0(file, header)
            _write_tensor(file, name, joined)

    # Features come last: if they exist, so does everything else.
    for name in sorted(joined.tensors(), key="features".__eq__):
        write_atomically(path if name == "features" else beside(path, f".{name}.npy"), partial(write, name))


def write_safetensors(path: Path, joined: JoinedParts) -> None:
    _write_names(path, joined)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(_safetensors_header(joined))
            for name in joined.tensors():
                _write_tensor(file, name, joined)

    write_atomically(path, write)


def _safetensors_header(joined: JoinedParts) -> bytes:
    """Made by hand, as the library only writes tensors in memory: 8 bytes of length, then type, shape and offsets."""
    header: dict[str, object] = {"__metadata__": {"flexpredict": joined.described()}}
    place = 0
    for name, (shape, dtype) in joined.tensors().items():
        end = place + prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype], "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that tensors are aligned
    return len(text).to_bytes(8, "little") + text


def _write_tensor(file: BinaryIO, name: str, joined: JoinedParts) -> None:
    for part in joined.each():
        file.write(part.tensor(name).numpy().data)


def _write_names(path: Path, joined: JoinedParts) -> None:
    names = (_one_line(name) for part in joined.each() for name in part.names())
    write_lines_atomically(beside(path, ".names.txt"), names)


def _one_line(text: str) -> str:
    """The text itself, or a JSON string if it is not printable or begins with a quotation mark."""
    return text if text.isprintable() and not text.startswith('"') else json.dumps(text)


def write_parquet(path: Path, joined: JoinedParts) -> None:
    first = next(part for part in joined.parts if part.facts["rows"])
    schema = _table(first, joined).schema.with_metadata({"flexpredict": joined.described()})
    words, counted = ([name for name in names if name in schema.names] for names in (["class"], ["index", "label"]))

    def write(temporary: Path) -> None:
        # Features hardly ever repeat, so neither a dictionary nor statistics of them would help.
        with ParquetWriter(temporary, schema, use_dictionary=words, write_statistics=counted) as writer:
            for part in joined.each():
                if part.facts["rows"]:
                    writer.write_table(_table(part, joined), row_group_size=part.facts["rows"])

    write_atomically(path, write)


def _table(part: StoredPart, joined: JoinedParts) -> pa.Table:
    def lists(name: str, *lengths: int) -> pa.Array:
        values = pa.array(part.tensor(name).numpy().reshape(-1))
        for length in lengths:
            values = pa.FixedSizeListArray.from_arrays(values, length)
        return values

    columns = {
        "image": pa.array([_text(name) for name in part.names()], pa.string()),
        "index": pa.array(part.tensor("indices").numpy()),
        "feature": lists("features", joined.shape.dim),
    }
    if joined.has_labels():
        labels = part.tensor("labels").numpy()
        columns["label"] = pa.array(labels, mask=labels < 0)
        if joined.classes:
            # The last entry is for images without a label, whose index is -1.
            names = np.array([*map(_text, joined.classes), None], dtype=object)
            columns["class"] = pa.array(names[np.where(labels < len(joined.classes), labels, -1)], pa.string())
    if joined.shape.patch_type is not None:
        columns["patches"] = lists("patches", joined.shape.patch_dim, joined.shape.patches)
    return pa.table(columns)


def _text(name: str) -> str:
    """A file name may hold bytes that are not UTF-8; a column of text may not."""
    return name.encode("utf-8", "backslashreplace").decode()


# How to write each format, and the endings of further files, not all of which are always written.
FORMATS: dict[str, tuple[Callable[[Path, JoinedParts], None], tuple[str, ...]]] = {
    ".parquet": (write_parquet, ()),
    ".npy": (write_npy, (".names.txt", ".json", ".indices.npy", ".labels.npy", ".patches.npy")),
    ".safetensors": (write_safetensors, (".names.txt",)),
}
