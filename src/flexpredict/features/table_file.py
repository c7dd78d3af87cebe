"""Features as a parquet table: one row for each image, one row group for each part."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flexpredict.features.joined_parts import JoinedParts
from flexpredict.features.parts import StoredPart
from flexpredict.files import write_atomically

if TYPE_CHECKING:
    from pyarrow import Array, Schema, Table


def write_parquet(path: Path, joined: JoinedParts) -> None:
    from pyarrow.parquet import ParquetWriter

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


def _schema(joined: JoinedParts) -> "Schema":
    import pyarrow as pa

    shape = joined.shape
    columns = [("image", pa.string()), ("index", pa.int64()), ("feature", pa.list_(pa.float32(), shape.dim))]
    if joined.has_labels():
        columns += [("label", pa.int64())] + ([("class", pa.string())] if joined.classes else [])
    if shape.patch_type is not None:
        number = pa.float16() if shape.patch_type == "float16" else pa.float32()
        columns.append(("patches", pa.list_(pa.list_(number, shape.patch_dim), shape.patches)))
    return pa.schema(columns, metadata={"flexpredict": joined.described()})


def _table(part: StoredPart, schema: "Schema", joined: JoinedParts) -> "Table":
    import pyarrow as pa

    labels = part.tensor("labels").numpy()
    columns: dict[str, Array] = {
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


def _lists(values: "Array", length: int) -> "Array":
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(values, length)


def _text(name: str) -> str:
    """A file name may hold bytes that are not UTF-8; a column of text may not."""
    return name.encode("utf-8", "backslashreplace").decode()
