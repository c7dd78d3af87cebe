"""Reads checkpoint files without ever running code from them.

Pickles are only opened by `torch.load(weights_only=True)`, which builds tensors and plain values and calls nothing.
Archives that would unpack to far more than their size are refused first, then tensors larger than their bytes.
"""

import argparse
import json
import pickle
import re
import zipfile
import zlib
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from flexpredict.errors import UserError, in_a_line, printable

# Archives that torch writes are not compressed. Some people compress them, but weights hardly shrink.
_MOST_EXPANSION = 20
_MOST_ENTRIES = 200_000
_LARGEST_SIDE = 2**31
_PICKLE = 256 * 2**20  # longer than any description of tensors
_INDEX = ".safetensors.index.json"
# Types that training scripts store beside weights: options, paths and NumPy numbers. None of them runs code.
_SCALAR: Any = np.float64(0).__reduce__()[0]
_ARRAY: Any = np.zeros(1).__reduce__()[0]
_INERT: list[Any] = [
    argparse.Namespace,
    PosixPath,
    np.ndarray,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?")),
    # Their modules in NumPy 1 and 2.
    *((_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *((_ARRAY, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, in the order of the file; names of nested dictionaries are joined by dots."""
    if path.name.endswith(_INDEX):
        tensors = _read_sharded(path)
    elif _is_safetensors(path):
        tensors = _read_safetensors(path)
    else:
        tensors = _flatten(_unpickle(path), path)
    if not tensors:
        raise UserError(f"{printable(str(path))} holds no tensors. Give a checkpoint of a vision transformer.")
    for name, tensor in tensors.items():
        _check(name, tensor, path)
    return tensors


def _unpickle(path: Path) -> Any:
    shown = printable(str(path))
    stored = _refuse_bombs(path)
    try:
        with torch.serialization.safe_globals(_INERT):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=stored)
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code:
            raise UserError(
                f"{shown} is refused: besides tensors it would import {code.group(1)}, which could run code on this "
                "machine. Nothing of it was run. Ask its author for a safetensors file, or for tensors alone."
            ) from error
        raise UserError(
            f"{shown} is not a checkpoint that can be read safely: its first bytes are {_first_bytes(path)}."
        ) from error
    except OSError as error:
        raise UserError(f"{shown} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # torch, zipfile and pickle raise many kinds of errors for broken bytes
        raise UserError(
            f"{shown} is damaged or is not a checkpoint: {_reason(error)} Its first bytes are {_first_bytes(path)}. "
            "If it was downloaded, compare its length with the original's."
        ) from error


def _refuse_bombs(path: Path) -> bool:
    """Refuse archives that unpack to far more than their size: they would fill the memory before any other check.

    Returns whether this is an archive with uncompressed entries, which can be mapped into memory.
    """
    try:
        entries, pickled = _entries(path)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError):
        # Not an archive (older checkpoints are plain pickles), or a broken one, which torch will report.
        with path.open("rb") as file:
            _refuse_bytes(file.read(_PICKLE), path)
        return False
    inside, outside = sum(entry.file_size for entry in entries), path.stat().st_size
    if inside > _MOST_EXPANSION * outside or len(entries) > _MOST_ENTRIES:
        raise UserError(
            f"{printable(str(path))} is refused: its {outside:,} bytes would unpack to {inside:,} "
            f"({len(entries):,} entries), like a zip bomb."
        )
    _refuse_bytes(pickled, path)
    return all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)


def _entries(path: Path) -> tuple[list[zipfile.ZipInfo], bytes]:
    """The entries of an archive, and the beginning of its pickles, which describe the tensors."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        pickled = b""
        for entry in entries[:_MOST_ENTRIES]:
            if entry.filename.endswith(".pkl"):
                with archive.open(entry) as file:
                    pickled += file.read(_PICKLE)
    return entries, pickled


def _refuse_bytes(pickled: bytes, path: Path) -> None:
    """Refuse a bytearray: the one object besides tensors that a few bytes of a harmless pickle can make huge."""
    if b"bytearray" in pickled:
        raise UserError(
            f"{printable(str(path))} is refused: besides tensors it allocates a bytearray, which can be of any size "
            "and which no checkpoint needs."
        )


def _flatten(checkpoint: Any, path: Path) -> dict[str, Tensor]:
    """Tensors in nested dictionaries with string keys. Optimizer states have number keys and are left out."""
    tensors: dict[str, Tensor] = {}
    waiting: list[tuple[str, Any]] = [("", checkpoint)]
    for _ in range(_MOST_ENTRIES):
        if not waiting:
            return tensors
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, dict):
            # Reversed, because the last one is taken first: tensors then keep the order of the file.
            entries = [
                (f"{name}.{key}" if name else key, entry) for key, entry in value.items() if isinstance(key, str)
            ]
            waiting += reversed(entries)
    raise UserError(
        f"{printable(str(path))} is refused: it holds more than {_MOST_ENTRIES:,} entries, nested in each other."
    )


def _check(name: str, tensor: Tensor, path: Path) -> None:
    shown = f"{printable(str(path))} is refused: its tensor {printable(name)}"
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise UserError(f"{shown} is not a plain array ({tensor.layout}, {tensor.device.type}).")
    if any(side >= _LARGEST_SIDE for side in tensor.shape):
        raise UserError(f"{shown} claims the absurd shape {tuple(tensor.shape)}.")
    # Overlapping strides make a few bytes look like terabytes, which the first copy would allocate.
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise UserError(
            f"{shown} claims the shape {tuple(tensor.shape)}, but only {tensor.untyped_storage().nbytes():,} bytes "
            "are there for it."
        )


def _is_safetensors(path: Path) -> bool:
    """Whether it has the suffix, or begins with the length of a header and the header, which is JSON."""
    if path.suffix == ".safetensors":
        return True
    with path.open("rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{printable(str(path))} is not a whole safetensors file: {_reason(error)} If it was downloaded, compare "
            "its length with the original's."
        ) from error


def _read_sharded(index: Path) -> dict[str, Tensor]:
    """Read weights in several files, with an index of which tensor is in which file."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{printable(str(index))} is not an index of weights: {_reason(error)}") from error
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"{printable(str(index))} is refused: it names {name!r}, which is not a file beside it.")
        tensors.update(_read_safetensors(index.with_name(name)))
    return tensors


def _first_bytes(path: Path) -> str:
    with path.open("rb") as file:
        return repr(file.read(16)) if path.stat().st_size else "none: it is empty"


def _reason(error: BaseException) -> str:
    """The first sentence of a library's error, which may fill a page."""
    text = in_a_line(error, 4000).split("WeightsUnpickler error: ")[-1] or type(error).__name__
    return text.split(". ")[0][:300].rstrip(".") + "."
