"""Features as .npy files, or as one .safetensors file, with the names in a text file beside them.

Both formats need the number of rows first and then one tensor after the other, so all parts are read once for each
tensor.
"""

import json
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from flexpredict.features.joined_parts import JoinedParts, write_names
from flexpredict.files import write_atomically, write_text_atomically

_SAFETENSORS_TYPES = {"int64": "I64", "float32": "F32", "float16": "F16"}


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
