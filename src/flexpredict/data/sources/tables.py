"""Parquet tables with a column of images, as the Hugging Face hub keeps them.

A row of such a file cannot be read alone: some thousand rows are compressed together. So a table is unpacked once
into one plain file in the cache, from which any image is read directly; or it is read as a stream, row group after
row group, with no copy.
"""

import json
import os
import shutil
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.byte_ranges import ByteRanges, close_files
from flexpredict.data.sources.image_source import MOST_CLASSES
from flexpredict.data.sources.listing import (
    Count,
    Listing,
    cache_folder,
    cached_listing,
    digest,
    digest_of,
    integers,
    state_of,
)
from flexpredict.data.sources.streams import ImageStream, Record
from flexpredict.errors import UserError, did_you_mean, in_a_line
from flexpredict.files import write_atomically

if TYPE_CHECKING:
    from pyarrow import DataType, RecordBatch, Schema
    from pyarrow.parquet import ParquetFile

_IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "picture", "photo", "pixels")
_LABEL_NAMES = ("label", "labels", "class", "cls", "category", "fine_label", "target")
_ROWS_AT_ONCE = 256
_NO_IMAGE = "the row holds no image"


@dataclass(eq=False, kw_only=True)
class TableSource(ByteRanges):
    """Rows of tables that were unpacked into one file."""

    tables: list[str] = field(repr=False)
    table_of: Tensor = field(repr=False)  # N int32
    rows: Tensor = field(repr=False)  # N int64, in the table
    is_path: Tensor = field(repr=False)  # N bool: the row does not hold the image but says where it is

    def describe(self, index: int) -> str:
        return f"{self.tables[int(self.table_of[index])]}, row {int(self.rows[index])}"

    def encoded(self, index: int) -> str | bytes:
        if not self.lengths[index]:
            raise UnreadableImage(self.describe(index), _NO_IMAGE)
        content = super().encoded(index)
        assert isinstance(content, bytes)
        if self.is_path[index]:
            return _beside(self.tables[int(self.table_of[index])], os.fsdecode(content))
        return content

    def fingerprint(self) -> str:
        """Not by the unpacked file, which may be made anew from the same tables."""
        places = digest_of(self.lengths.numpy())
        return digest([places, *(f"{table} {state_of(table)}" for table in self.tables)])


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold the image and its class."""

    image: str
    label: str | None = None
    classes: tuple[str, ...] | None = None


def open_tables(name: str, files: list[str], image: str | None, label: str | None, count: Count) -> TableSource:
    """Unpack, or find unpacked, the tables in these files."""
    close_files()
    readable, problems = _readable(name, files)
    columns = _columns(readable[0], image, label)
    readable, others = _with_column(readable, columns.image)
    problems += others
    places = [*map(os.path.abspath, readable), columns.image, columns.label or ""]
    listing = cached_listing("tables", places, lambda: _unpack(readable, columns, count), worth_it=0)
    if not Path(listing.notes["unpacked"]).is_file():  # the cache was half emptied
        listing = _unpack(readable, columns, count)
    tensors, labels = listing.tensors, listing.tensors.get("labels")
    problems += [UnreadableImage(*problem) for problem in listing.notes["problems"]]
    if not len(tensors["starts"]):
        raise UserError(f"There are no rows in {name}." + (f" {problems[0]}" if problems else ""))
    classes = listing.notes["classes"]
    return TableSource(
        name=name,
        classes=None if labels is None else tuple(classes or map(str, range(int(labels.max()) + 1))),
        labels=labels,
        problems=problems,
        files=[listing.notes["unpacked"]],
        file_of=torch.zeros(1, dtype=torch.int32).expand(len(tensors["starts"])),
        starts=tensors["starts"],
        lengths=tensors["lengths"],
        tables=readable,
        table_of=tensors["table_of"],
        rows=tensors["rows"],
        is_path=tensors["is_path"],
    )


class TableStream(ImageStream):
    """Tables read row group after row group."""

    def __init__(self, name: str, files: list[str], image: str | None, label: str | None) -> None:
        self.name = name
        readable, self._problems = _readable(name, files)
        self._columns = _columns(readable[0], image, label)
        readable, others = _with_column(readable, self._columns.image)
        self._problems += others
        self._groups = [(file, group) for file in readable for group in range(_open(file).num_row_groups)]
        self.classes = self._columns.classes
        self.length: int | None = sum(_open(file).metadata.num_rows for file in readable)

    @property
    def pieces(self) -> int:
        return len(self._groups)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        if piece == 0:
            yield from self._problems
        file, group = self._groups[piece]
        for row, encoded, label in _rows(file, group, self._columns):
            name = f"{file}, row {row}"
            if isinstance(encoded, UnreadableImage):
                yield encoded
            elif encoded is None:
                yield UnreadableImage(name, _NO_IMAGE)
            else:
                found = _beside(file, encoded) if isinstance(encoded, str) else encoded
                yield Record(name, found, label if isinstance(label, int) and label >= 0 else None)


def _readable(name: str, files: list[str]) -> tuple[list[str], list[UnreadableImage]]:
    """The files that are tables, and what is wrong with the others."""
    tables, problems = [], []
    for file in files:
        try:
            _open(file)
            tables.append(file)
        except (OSError, ValueError) as error:
            problems.append(UnreadableImage(file, f"cannot be read as a table: {in_a_line(error)}"))
    if not tables:
        raise UserError(f"None of the {len(files)} file(s) of {name} is a whole table; for example {problems[0]}")
    return tables, problems


def _with_column(files: list[str], image: str) -> tuple[list[str], list[UnreadableImage]]:
    """The tables that have images where the first has them, and what is wrong with the others."""
    tables, problems = [], []
    kind = _open(files[0]).schema_arrow.field(image).type
    for file in files:
        schema = _open(file).schema_arrow
        if image in schema.names and (schema.field(image).type == kind or _could_hold_images(schema, image)):
            tables.append(file)
        else:
            problems.append(UnreadableImage(file, f"has no images in a column '{image}', as {files[0]} has"))
    return tables, problems


def _open(file: str) -> "ParquetFile":
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UserError(f"Reading {file} needs pyarrow: pip install 'flexpredict[hf]'.") from error
    return ParquetFile(file, memory_map=True)


def _columns(file: str, image: str | None, label: str | None) -> Columns:
    """What the table says of itself, else by the names and types of its columns."""
    schema: Schema = _open(file).schema_arrow
    features = _features(schema)
    for asked, option in ((image, "image"), (label, "label")):
        if asked is not None and asked not in schema.names:
            raise UserError(
                f"{file} has no column '{asked}'.{did_you_mean(asked, schema.names)} Its columns are "
                f"{', '.join(schema.names)}; name one with ,{option}=COLUMN after the path."
            )
    images = [name for name, feature in features.items() if feature.get("_type") == "Image"]
    images = images or [name for name in schema.names if _could_hold_images(schema, name)]
    if image is None:
        images = [name for name in images if name.lower() in _IMAGE_NAMES] or images
        if len(images) != 1:
            found = "several columns that could hold images" if images else "no column that could hold images"
            raise UserError(
                f"{file} has {found}. Its columns are {', '.join(schema.names)}; name one with ,image=COLUMN after "
                "the path."
            )
        image = images[0]
    if label is None:
        labels = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel"]
        labels = labels or [name for name in schema.names if name.lower() in _LABEL_NAMES]
        label = next((name for name in _LABEL_NAMES if name in labels), labels[0] if labels else None)
    names = features.get(label, {}).get("names") if label else None
    return Columns(image, label, tuple(map(str, names)) if names and isinstance(names, list) else None)


def _features(schema: "Schema") -> dict[str, Any]:
    try:
        described = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: described[name] for name in schema.names if isinstance(described.get(name), dict)}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def _could_hold_images(schema: "Schema", name: str) -> bool:
    import pyarrow as pa

    kind = schema.field(name).type
    if pa.types.is_struct(kind):
        fields = [kind.field(part) for part in range(kind.num_fields)]
        return any(field.name == "bytes" and _is_bytes(field.type) for field in fields)
    return _is_bytes(kind)


def _is_bytes(kind: "DataType") -> bool:
    import pyarrow as pa

    # Null: a column of nothing but None, as where all images are named by their paths.
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind))


def _rows(
    file: str, group: int, columns: Columns
) -> Iterator[tuple[int, str | bytes | UnreadableImage | None, int | str | None]]:
    """Row number, image and class of each row of a group; of a damaged group, what is wrong with the rest of it."""
    table = _open(file)
    first = sum(table.metadata.row_group(before).num_rows for before in range(group))
    last = first + table.metadata.row_group(group).num_rows - 1
    wanted = [name for name in (columns.image, columns.label) if name in table.schema_arrow.names]
    row = first
    try:
        for batch in table.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=wanted):
            for encoded, label in zip(_images(batch, columns.image), _labels(batch, columns), strict=True):
                yield row, encoded, label
                row += 1
    except (OSError, ValueError) as error:
        rows = f"rows {row} to {last}" if row < last else f"row {row}"
        yield row, UnreadableImage(f"{file}, {rows}", in_a_line(error)), None


def _images(batch: "RecordBatch", column: str) -> list[str | bytes | None]:
    values = batch.column(column).to_pylist()
    found = [(value.get("bytes") or value.get("path")) if isinstance(value, dict) else value for value in values]
    return [value or None for value in found]


def _labels(batch: "RecordBatch", columns: Columns) -> list[int | str | None]:
    if columns.label not in batch.schema.names:
        return [None] * batch.num_rows
    count = len(columns.classes or ()) or MOST_CLASSES
    values = batch.column(columns.label).to_pylist()
    return [
        value if isinstance(value, str) or (isinstance(value, int) and 0 <= value < count) else None
        for value in values
    ]


def _unpack(files: list[str], columns: Columns, count: Count) -> Listing:
    places = map(os.path.abspath, files)
    path = cache_folder() / "tables" / f"{Path(files[0]).stem}-{digest([*places, columns.image])}.images"
    starts, lengths, table_of, rows, is_path = array("q"), array("q"), array("q"), array("q"), bytearray()
    labels: list[int | str | None] = []
    problems: list[UnreadableImage] = []

    def write(temporary: Path) -> None:
        with temporary.open("wb") as unpacked:
            for number, file in enumerate(files):
                for group in range(_open(file).num_row_groups):
                    for row, encoded, label in _rows(file, group, columns):
                        if isinstance(encoded, UnreadableImage):
                            problems.append(encoded)
                            continue
                        starts.append(unpacked.tell())
                        lengths.append(unpacked.write(_bytes(encoded)))
                        is_path.append(isinstance(encoded, str))
                        table_of.append(number)
                        rows.append(row)
                        labels.append(label)
                        if len(rows) % 1000 == 0:
                            count(1000)

    _make_room(path, files)
    write_atomically(path, write)
    tensors = {
        "starts": integers(starts),
        "lengths": integers(lengths),
        "table_of": integers(table_of).to(torch.int32),
        "rows": integers(rows),
        "is_path": torch.tensor(is_path, dtype=torch.bool),
    }
    classes = columns.classes
    if any(isinstance(label, str) for label in labels):
        classes = tuple(sorted({str(label) for label in labels if label is not None}))
        number_of = {name: number for number, name in enumerate(classes)}
        labels = [None if label is None else number_of[str(label)] for label in labels]
    if any(label is not None and int(label) >= 0 for label in labels):
        tensors["labels"] = torch.tensor([-1 if label is None else int(label) for label in labels])
    notes = {
        "unpacked": str(path),
        "classes": classes,
        "problems": [[problem.name, problem.reason] for problem in problems],
    }
    return Listing(tensors, notes, [os.path.abspath(file) for file in files])


def _bytes(encoded: str | bytes | None) -> bytes:
    return os.fsencode(encoded) if isinstance(encoded, str) else encoded or b""


def _beside(table: str, path: str) -> str:
    return os.path.join(os.path.dirname(table), path)


def _make_room(path: Path, files: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    needed, free = sum(os.path.getsize(file) for file in files), shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"Unpacking {len(files)} table(s) takes about {needed / 1e9:.1f} GB in {path.parent}, which has "
            f"{free / 1e9:.1f} GB free. Set FLEXPREDICT_CACHE to a folder with more room, or put stream: before the "
            "path to read the tables without a copy."
        )
