"""Features as .npy files, or as one .safetensors file, with the names in a text file beside them.

Both formats want to know the number of rows first and then one tensor after the other, so the parts are gone through
once for each tensor.
"""

import json
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from flexpredict.features.collection import Collection, write_names
from flexpredict.files import write_atomically, write_text_atomically

_SAFETENSORS_TYPES = {"int64": "I64", "float32": "F32", "float16": "F16"}


def beside(path: Path, ending: str) -> Path:
    """A further file of the same embedding: features.npy.names.txt. By the whole name, so that features.npy and
    features.safetensors have each their own."""
    return path.with_name(path.name + ending)


def write_npy(path: Path, collection: Collection) -> None:
    write_names(beside(path, ".names.txt"), collection)
    write_text_atomically(beside(path, ".json"), collection.described() + "\n")
    # The features themselves come last: where they are, all is.
    for name, (shape, dtype) in sorted(collection.shapes().items(), key=lambda entry: entry[0] == "features"):
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}

        def write(temporary: Path, name: str = name, header: dict[str, object] = header) -> None:
            with temporary.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                _write_tensor(file, name, collection)

        write_atomically(path if name == "features" else beside(path, f".{name}.npy"), write)


def write_safetensors(path: Path, collection: Collection) -> None:
    write_names(beside(path, ".names.txt"), collection)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(_safetensors_header(collection))
            for name in collection.shapes():
                _write_tensor(file, name, collection)

    write_atomically(path, write)


def _safetensors_header(collection: Collection) -> bytes:
    """The length of a JSON object in 8 bytes, and the object: type, shape and place of each tensor."""
    header: dict[str, object] = {"__metadata__": {"flexpredict": collection.described()}}
    place = 0
    for name, (shape, dtype) in collection.shapes().items():
        end = place + prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype], "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that tensors begin where a processor likes numbers to begin
    return len(text).to_bytes(8, "little") + text


def _write_tensor(file: BinaryIO, name: str, collection: Collection) -> None:
    for part in collection.each():
        file.write(part.tensor(name).numpy().data)
