"""Parquet tables with a column of images, as the Hugging Face hub keeps them.

A row of such a file cannot be read alone: some thousand rows are compressed together. So a table is unpacked once
into one plain file in the cache, from which any image is read directly; or it is read as a stream, row group after
row group, with no copy.
"""

import os
import shutil
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from pyarrow.parquet import FileMetaData, ParquetFile
from torch import Tensor

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.columns import NO_IMAGE, find_columns, holds_images, number_labels, stored_image
from flexpredict.data.sources.image_source import ByteRanges, Record, close_files
from flexpredict.data.sources.listing import (
    Count,
    Listing,
    cache_folder,
    cached_listing,
    columns,
    digest,
    digest_of,
    state_of,
)
from flexpredict.data.sources.streams import ImageStream
from flexpredict.errors import UserError, in_a_line
from flexpredict.files import write_atomically

_ROWS_AT_ONCE = 256
_Row: TypeAlias = tuple[int, str | bytes | None, object]  # its number, image and label; None: it holds no image
_ARROW_ERRORS = (OSError, ValueError, pa.ArrowException)


@dataclass(eq=False, kw_only=True)
class TableSource(ByteRanges):
    """Rows of tables that were unpacked into one file."""

    tables: list[str] = field(repr=False)
    table_of: Tensor = field(repr=False)  # N int32: index into `tables`
    rows: Tensor = field(repr=False)  # N int64: of the table
    is_path: Tensor = field(repr=False)  # N bool: the row holds the path of an image file

    def describe(self, index: int) -> str:
        return f"{self.tables[int(self.table_of[index])]}, row {int(self.rows[index])}"

    def encoded(self, index: int) -> Encoded:
        if not self.lengths[index]:
            raise UnreadableImage(self.describe(index), NO_IMAGE)
        content = super().encoded(index)
        return os.fsdecode(content) if self.is_path[index] and isinstance(content, bytes) else content

    def fingerprint(self) -> str:
        """From the tables, because the file that they are unpacked into may be made again."""
        return digest([digest_of(self.lengths.numpy()), *(f"{table} {state_of(table)}" for table in self.tables)])


def open_tables(name: str, files: list[str], image: str | None, label: str | None, count: Count) -> TableSource:
    """Unpack the tables in these files, or find them unpacked in the cache."""
    close_files()

    def unpack() -> Listing:
        return _unpack(TableStream(name, files, image, label), files, count)

    places = [*map(os.path.abspath, files), image or "", label or ""]
    listing = cached_listing("tables", places, unpack, worth_it=0)
    if not Path(listing.notes["unpacked"]).is_file():  # the cache was half emptied
        listing = unpack()
    notes, length = listing.notes, len(listing.tensors["lengths"])
    if not length:
        raise UserError(f"There are no rows in {name}." + (f" {listing.problems[0]}" if listing.problems else ""))
    return TableSource(
        name=name,
        classes=None if notes["classes"] is None else tuple(notes["classes"]),
        problems=listing.problems,
        files=[notes["unpacked"]],
        file_of=torch.zeros(1, dtype=torch.int32).expand(length),
        tables=notes["tables"],
        **listing.tensors,
    )


class TableStream(ImageStream):
    """Tables read row group after row group. Tables without the first one's image column are listed as problems."""

    def __init__(self, name: str, files: list[str], image: str | None, label: str | None) -> None:
        self.name = name
        self.problems: list[UnreadableImage] = []
        self.tables: list[_Table] = []
        for file in files:
            try:
                self.tables.append(_Table.open(file))
            except _ARROW_ERRORS as error:
                self.problems.append(UnreadableImage(file, f"cannot be read as a table: {in_a_line(error)}"))
        if not self.tables:
            reason = f"is an intact table; for example {self.problems[0]}"
            raise UserError(f"None of the {len(files)} file(s) of {name} {reason}")
        first = self.tables[0]
        self.columns = find_columns(first.path, first.schema, image, label)
        reason = f"has no images in a column '{self.columns.image}', as {first.path} has"
        others = [table for table in self.tables if not table.has_column_of(first, self.columns.image)]
        self.problems += [UnreadableImage(table.path, reason) for table in others]
        self.tables = [table for table in self.tables if table not in others]
        self.classes = self.columns.classes
        self.length: int | None = sum(table.first_rows[-1] for table in self.tables)
        self._groups = [(table, group) for table in self.tables for group in range(table.groups)]

    @property
    def pieces(self) -> int:
        return len(self._groups)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        if piece == 0:
            yield from self.problems
        table, group = self._groups[piece]
        for found in self.rows(table, group):
            if isinstance(found, UnreadableImage):
                yield found
                continue
            row, image, label = found
            name = f"{table.path}, row {row}"
            yield Record(name, image, self.columns.label_number(label)) if image else UnreadableImage(name, NO_IMAGE)

    def rows(self, table: "_Table", group: int) -> Iterator[_Row | UnreadableImage]:
        """The rows of a group; a damaged group ends with an UnreadableImage for the rest of it."""
        row, last = table.first_rows[group], table.first_rows[group + 1] - 1
        wanted = [name for name in self.columns.names if name in table.schema.names]
        try:
            with ParquetFile(table.path, metadata=table.footer, memory_map=True) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=wanted):
                    images = _values(batch.column(self.columns.image))
                    labels = batch.column(self.columns.label).to_pylist() if len(wanted) > 1 else [None] * len(batch)
                    for value, label in zip(images, labels, strict=True):
                        image = stored_image(value)
                        yield row, table.beside(image) if isinstance(image, str) else image, label
                        row += 1
        except _ARROW_ERRORS as error:
            rows = f"rows {row} to {last}" if row < last else f"row {row}"
            yield UnreadableImage(f"{table.path}, {rows}", in_a_line(error))


def _values(column: pa.Array) -> list[Any]:
    """Values as Python objects. pyarrow itself would stop at paths that are not valid UTF-8."""
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        return [dict(zip(names, row, strict=True)) for row in zip(*map(_values, column.flatten()), strict=True)]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [None if text is None else os.fsdecode(text) for text in column.cast(pa.large_binary()).to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Table:
    """A parquet file, whose footer is read once."""

    path: str
    schema: pa.Schema
    footer: FileMetaData
    first_rows: tuple[int, ...]  # of each row group, and at the end the number of all rows

    @classmethod
    def open(cls, path: str) -> "_Table":
        with ParquetFile(path) as file:
            footer, schema = file.metadata, file.schema_arrow
        lengths = (footer.row_group(group).num_rows for group in range(footer.num_row_groups))
        return cls(path, schema, footer, tuple(accumulate(lengths, initial=0)))

    @property
    def groups(self) -> int:
        return len(self.first_rows) - 1

    def has_column_of(self, other: "_Table", image: str) -> bool:
        """Whether this table has images in the same column as the other table."""
        if image not in self.schema.names:
            return False
        return self.schema.field(image).type == other.schema.field(image).type or holds_images(self.schema, image)

    def beside(self, path: str) -> str:
        """A path in a table is relative to the table."""
        return os.path.join(os.path.dirname(os.path.abspath(self.path)), path)


def _unpack(stream: TableStream, files: list[str], count: Count) -> Listing:
    """Write all images into one file, one after the other, and record where each one is."""
    tables, problems = [table.path for table in stream.tables], list(stream.problems)
    places = digest([*map(os.path.abspath, tables), stream.columns.image])
    path = cache_folder() / "tables" / f"{Path(tables[0]).stem}-{places}.images"
    rows = array("q")
    labels: list[object] = []

    def write(temporary: Path) -> None:
        with temporary.open("wb") as unpacked:
            for number, table in enumerate(stream.tables):
                for group in range(table.groups):
                    for found in stream.rows(table, group):
                        if isinstance(found, UnreadableImage):
                            problems.append(found)
                            continue
                        row, image, label = found
                        content = os.fsencode(image) if isinstance(image, str) else image or b""
                        unpacked.write(content)
                        rows.extend((number, row, len(content), isinstance(image, str)))
                        labels.append(label)
                    count(table.first_rows[group + 1] - table.first_rows[group])

    _require_room(path, tables)
    write_atomically(path, write)
    tensors = columns(rows, table_of=torch.int32, rows=torch.int64, lengths=torch.int64, is_path=torch.bool)
    tensors["starts"] = tensors["lengths"].cumsum(0) - tensors["lengths"]
    numbers, classes = number_labels(labels, stream.columns.classes)
    if numbers is not None:
        tensors["labels"] = numbers
    notes = {"unpacked": str(path), "tables": tables, "classes": classes}
    return Listing(tensors, problems, notes, [os.path.abspath(file) for file in files])


def _require_room(path: Path, files: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    needed, free = sum(os.path.getsize(file) for file in files), shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"Unpacking {len(files)} table(s) takes about {needed / 1e9:.1f} GB in {path.parent}, which has "
            f"{free / 1e9:.1f} GB free. Set FLEXPREDICT_CACHE to a folder with more room, or put stream: before the "
            "path to read the tables without a copy."
        )
