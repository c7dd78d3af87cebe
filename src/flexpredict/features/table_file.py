"""Features as a parquet table: a row an image, a row group a part."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flexpredict.errors import UserError
from flexpredict.features.collection import Collection
from flexpredict.features.parts import StoredPart
from flexpredict.files import write_atomically

if TYPE_CHECKING:
    from pyarrow import Array, Schema, Table


def require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise UserError(
            "Writing .parquet needs pyarrow: pip install 'flexpredict[hf]'. Or write .npy or .safetensors, which "
            "need nothing more."
        ) from error


def write_parquet(path: Path, collection: Collection) -> None:
    from pyarrow.parquet import ParquetWriter

    schema = _schema(collection)
    words = [name for name in ("class",) if name in schema.names]
    counted = [name for name in ("index", "label") if name in schema.names]

    def write(temporary: Path) -> None:
        # Numbers of features hardly ever come twice: a dictionary of them, or their extremes, would help nobody.
        with ParquetWriter(temporary, schema, use_dictionary=words, write_statistics=counted) as writer:
            for part in collection.each():
                if part.facts["rows"]:
                    writer.write_table(_table(part, schema, collection), row_group_size=part.facts["rows"])

    write_atomically(path, write)


def _schema(collection: Collection) -> "Schema":
    import pyarrow as pa

    row = collection.row
    columns = [("image", pa.string()), ("index", pa.int64()), ("feature", pa.list_(pa.float32(), row.dim))]
    if collection.has_labels():
        columns += [("label", pa.int64())] + ([("class", pa.string())] if collection.classes else [])
    if row.patch_type is not None:
        number = pa.float16() if row.patch_type == "float16" else pa.float32()
        columns.append(("patches", pa.list_(pa.list_(number, row.patch_dim), row.patches)))
    return pa.schema(columns, metadata={"flexpredict": collection.described()})


def _table(part: StoredPart, schema: "Schema", collection: Collection) -> "Table":
    import pyarrow as pa

    labels = part.tensor("labels").numpy()
    columns: dict[str, Array] = {
        "image": pa.array([_text(name) for name in part.names()], pa.string()),
        "index": pa.array(part.tensor("indices").numpy()),
        "feature": _lists(pa.array(part.tensor("features").numpy().reshape(-1)), collection.row.dim),
        "label": pa.array(labels, mask=labels < 0),
    }
    if collection.classes:
        # The last entry is for images without a label, whose index is -1.
        names = np.array([*map(_text, collection.classes), None], dtype=object)
        columns["class"] = pa.array(names[np.where(labels < len(collection.classes), labels, -1)], pa.string())
    if collection.row.patch_type is not None:
        numbers = pa.array(part.tensor("patches").numpy().reshape(-1))
        columns["patches"] = _lists(_lists(numbers, collection.row.patch_dim), collection.row.patches)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _lists(values: "Array", length: int) -> "Array":
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(values, length)


def _text(name: str) -> str:
    """A file's name may hold bytes that are no UTF-8, which a column of words cannot."""
    return name.encode("utf-8", "backslashreplace").decode()
