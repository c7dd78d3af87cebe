"""The files of a finished embedding: their formats, and when they may be written."""

import glob
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from pyarrow.parquet import ParquetWriter

from flexpredict.errors import UserError, did_you_mean
from flexpredict.features.joined_parts import JoinedParts, write_lines, write_names
from flexpredict.features.parts import StoredPart
from flexpredict.files import write_atomically, write_text_atomically

_SAFETENSORS_TYPES = {"int64": "I64", "float32": "F32", "float16": "F16"}


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


def beside(path: Path, ending: str) -> Path:
    """A further file of the same embedding: features.npy.names.txt.

    It begins with the whole name, so that features.npy and features.safetensors each have their own.
    """
    return path.with_name(path.name + ending)


def write_npy(path: Path, joined: JoinedParts) -> None:
    write_names(beside(path, ".names.txt"), joined)
    write_text_atomically(beside(path, ".json"), joined.described() + "\n")
    # The features themselves come last: where they are, all the rest is.
    for name, (shape, dtype) in sorted(joined.tensors().items(), key=lambda entry: entry[0] == "features"):
        # The header of an array of this shape and type; broadcast, it takes no memory.
        header = npy.header_data_from_array_1_0(np.broadcast_to(np.zeros((), dtype), shape))

        def write(temporary: Path, name: str = name, header: dict[str, object] = header) -> None:
            with temporary.open("wb") as file:
                npy.write_array_header_1_0(file, header)
                _write_tensor(file, name, joined)

        write_atomically(path if name == "features" else beside(path, f".{name}.npy"), write)


def write_safetensors(path: Path, joined: JoinedParts) -> None:
    write_names(beside(path, ".names.txt"), joined)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(_safetensors_header(joined))
            for name in joined.tensors():
                _write_tensor(file, name, joined)

    write_atomically(path, write)


def _safetensors_header(joined: JoinedParts) -> bytes:
    """By hand, as the library writes only tensors in memory: 8 bytes of length, then type, shape and place."""
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


def write_parquet(path: Path, joined: JoinedParts) -> None:
    schema = _schema(joined)
    words = [name for name in ("class",) if name in schema.names]
    counted = [name for name in ("index", "label") if name in schema.names]

    def write(temporary: Path) -> None:
        # Features hardly ever repeat: a dictionary of them, or their extremes, would be of no use.
        with ParquetWriter(temporary, schema, use_dictionary=words, write_statistics=counted) as writer:
            for part in joined.each():
                if part.facts["rows"]:
                    writer.write_table(_table(part, schema, joined), row_group_size=part.facts["rows"])

    write_atomically(path, write)


def _schema(joined: JoinedParts) -> pa.Schema:
    shape = joined.shape
    columns = [("image", pa.string()), ("index", pa.int64()), ("feature", pa.list_(pa.float32(), shape.dim))]
    if joined.has_labels():
        columns += [("label", pa.int64())] + ([("class", pa.string())] if joined.classes else [])
    if shape.patch_type is not None:
        number = pa.float16() if shape.patch_type == "float16" else pa.float32()
        columns.append(("patches", pa.list_(pa.list_(number, shape.patch_dim), shape.patches)))
    return pa.schema(columns, metadata={"flexpredict": joined.described()})


def _table(part: StoredPart, schema: pa.Schema, joined: JoinedParts) -> pa.Table:
    labels = part.tensor("labels").numpy()
    columns: dict[str, pa.Array] = {
        "image": pa.array([_text(name) for name in part.names()], pa.string()),
        "index": pa.array(part.tensor("indices").numpy()),
        "feature": _lists(pa.array(part.tensor("features").numpy().reshape(-1)), joined.shape.dim),
        "label": pa.array(labels, mask=labels < 0),
    }
    if joined.classes:
        # The last entry is for images without a label, whose index is -1.
        names = np.array([*map(_text, joined.classes), None], dtype=object)
        columns["class"] = pa.array(names[np.where(labels < len(joined.classes), labels, -1)], pa.string())
    if joined.shape.patch_type is not None:
        numbers = pa.array(part.tensor("patches").numpy().reshape(-1))
        columns["patches"] = _lists(_lists(numbers, joined.shape.patch_dim), joined.shape.patches)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _lists(values: pa.Array, length: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values, length)


def _text(name: str) -> str:
    """A file name may hold bytes that are not UTF-8; a column of text may not."""
    return name.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class _Format:
    write: Callable[[Path, JoinedParts], None]
    beside: tuple[str, ...] = ()  # endings of further files, not all of which are always written


FORMATS = {
    ".parquet": _Format(write_parquet),
    ".npy": _Format(write_npy, (".names.txt", ".json", ".indices.npy", ".labels.npy", ".patches.npy")),
    ".safetensors": _Format(write_safetensors, (".names.txt",)),
}
