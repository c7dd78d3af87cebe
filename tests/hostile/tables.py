"""Parquet tables that are damaged or foolish, or of which rows are."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hostile.pieces import BROKEN, FOREIGN, READABLE, Hostile, patched, picture, random_bytes, saved

_NO_IMAGE = r"no image|empty"
_NO_FILE = r"no such file"
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_FEATURES = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
_GOOD = {"bytes": saved("JPEG"), "path": "good.jpg"}


def write_parquet(folder: Path) -> list[Hostile]:
    """As the Hugging Face hub keeps them: a column `image` of `bytes` and `path`, and perhaps a column `label`."""
    folder.mkdir(parents=True)
    written: list[Hostile] = []

    def expect(name: str, fates: dict[str, str]) -> None:
        kind = name.removesuffix(".parquet").replace(" ", "_")
        written.extend(Hostile(f"{name}, {place}", kind, reason) for place, reason in fates.items())

    rows = _bad_rows()
    # The first in its folder, and unlike those behind it with names for its classes.
    _write_table(folder / "bad rows.parquet", [row for row, _ in rows], pa.array([0] * len(rows)), _about(_FEATURES))
    expect("bad rows.parquet", {f"row {number}": reason for number, (_, reason) in enumerate(rows)})
    for name, (labels, about) in _bad_labels().items():
        _write_table(folder / name, [_GOOD] * len(labels), labels, about)
        expect(name, {f"row {number}": READABLE for number in range(len(labels))})

    overwritten = folder / "overwritten.parquet"
    _write_table(overwritten, [{"bytes": saved("JPEG", picture(seed=n)), "path": None} for n in range(12)])
    whole = overwritten.read_bytes()
    _overwrite_second_group(overwritten)
    expect("overwritten.parquet", {f"row {n}": READABLE for n in (*range(4), *range(8, 12))})
    expect("overwritten.parquet", {"rows 4 to 7": r"deserializ|corrupt|invalid|unexpected"})

    _write_table(folder / "paths that are not text.parquet", _paths_that_are_not_text())
    expect("paths that are not text.parquet", {"row 0": READABLE, "row 1": _NO_FILE})
    _write_table(folder / "no images.parquet", [None, None])
    expect("no images.parquet", {"row 0": _NO_IMAGE, "row 1": _NO_IMAGE})
    _write_table(folder / "no rows.parquet", [])
    numbers = pa.array([{"bytes": 5}, {"bytes": 6}], pa.struct([("bytes", pa.int64())]))
    pq.write_table(pa.table({"image": numbers}), folder / "numbers for bytes.parquet")
    pq.write_table(pa.table({"words": ["no", "image"]}), folder / "other columns.parquet")
    for name, reason in {"numbers for bytes.parquet": r"column|bytes", "other columns.parquet": r"column"}.items():
        written.append(Hostile(name, name.removesuffix(".parquet").replace(" ", "_"), reason))
    for name, content in {
        "cut short.parquet": whole[: len(whole) // 2],
        "footer only.parquet": b"PAR1" + whole[-8:],
        "text.parquet": b"Access denied.\n" * 9,
        "nothing.parquet": b"",
        "noise.parquet": b"PAR1" + random_bytes("parquet", 3000) + b"PAR1",
    }.items():
        (folder / name).write_bytes(content)
        written.append(Hostile(name, name.removesuffix(".parquet").replace(" ", "_"), r"parquet"))
    return written


def _bad_rows() -> list[tuple[dict[str, Any] | None, str]]:
    return [
        (_GOOD, READABLE),
        (None, _NO_IMAGE),
        ({"bytes": random_bytes("row", 2000), "path": "noise.jpg"}, FOREIGN),
        ({"bytes": b"", "path": "empty.jpg"}, rf"{_NO_IMAGE}|{_NO_FILE}"),
        ({"bytes": None, "path": "missing/nowhere.jpg"}, _NO_FILE),
        ({"bytes": None, "path": "http://example.org/1.jpg"}, _NO_FILE),
        ({"bytes": None, "path": "/dev/zero"}, r"not a regular file"),
        ({"bytes": None, "path": "."}, r"not a regular file|directory"),
        ({"bytes": None, "path": "a\0b.jpg"}, r"null byte"),
        ({"bytes": None, "path": "n" * 5000}, r"too long"),
        ({"bytes": None, "path": None}, _NO_IMAGE),
        ({"bytes": saved("JPEG")[:300], "path": None}, BROKEN),
        ({"bytes": saved("PNG"), "path": None}, READABLE),
    ]


def _bad_labels() -> dict[str, tuple[pa.Array, str]]:
    """Classes, and what the table says of itself."""
    numbers = pa.array([0, 1])
    return {
        # One class for each number up to these would be very many.
        "labels that are none.parquet": (pa.array([0, 5_000_000, -7, None, 3]), ""),
        "labels without a name.parquet": (pa.array([0, 1, 9, -1]), _about(_FEATURES)),
        "labels beyond 63 bits.parquet": (pa.array([0, 2**63 + 1], pa.uint64()), ""),
        "labels with a fraction.parquet": (pa.array([0.5, float("nan")]), ""),
        "labels in lists.parquet": (pa.array([[1], []]), ""),
        "description is no JSON.parquet": (numbers, "{"),
        "description is a list.parquet": (numbers, "[]"),
        "features are a list.parquet": (numbers, _about(["image"])),
        "names are a number.parquet": (numbers, _about(_FEATURES | {"label": {"_type": "ClassLabel", "names": 5}})),
        "image is not there.parquet": (numbers, _about({"gone": {"_type": "Image"}})),
        "label is not there.parquet": (
            numbers,
            _about(_FEATURES | {"gone": {"_type": "ClassLabel", "names": ["cat"]}}),
        ),
        "type is a list.parquet": (numbers, _about({"image": {"_type": ["Image"]}})),
    }


def _about(features: object) -> str:
    return json.dumps({"info": {"features": features}})


def _paths_that_are_not_text() -> pa.Array:
    latin = pa.array([b"good.jpg", b"latin-\xe9.jpg"], pa.binary())
    paths = pa.Array.from_buffers(pa.string(), len(latin), latin.buffers())  # pyarrow does not look
    return pa.StructArray.from_arrays([pa.array([_GOOD["bytes"], None], pa.binary()), paths], fields=list(_IMAGE))


def _overwrite_second_group(path: Path) -> None:
    """The images of one of three row groups become noise; the table of contents at the end is left whole."""
    group = pq.ParquetFile(path).metadata.row_group(1)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "image.bytes")
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    path.write_bytes(patched(path.read_bytes(), start, put=random_bytes("page", chunk.total_compressed_size)))


def _write_table(path: Path, images: Any, labels: pa.Array | None = None, about: str = "") -> None:
    columns = {"image": images if isinstance(images, pa.Array) else pa.array(images, _IMAGE)}
    columns |= {} if labels is None else {"label": labels}
    table = pa.table(columns).replace_schema_metadata({"huggingface": about} if about else None)
    pq.write_table(table, path, row_group_size=4)
