"""Opens images of any kind, without decoding their pixels. Anything else is refused with a reason."""

import ctypes
import io
import logging
import os
import re
import stat
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError, _imaging

Encoded: TypeAlias = str | bytes | NDArray[np.uint8]  # the path of a file, the content of one, or pixels H W 3

# PIL knows more formats, but some of them run other programs (EPS) and most are hardly used.
_WANTED = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "JPEG2000", "PPM")
Image.init()
_FORMATS = tuple(format for format in _WANTED if format in Image.OPEN)  # AVIF came with Pillow 11.3.
# PIL reads headers a few bytes at a time. With its own small buffer that takes a fifth of the time of a small JPEG.
_BUFFER = 2**17
_PIL_WARNINGS = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
# A progressive JPEG has about ten scans. Each takes as long as decoding the image: thousands are an attack.
_MAX_SCANS = 200
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9


class UnreadableImage(Exception):  # noqa: N818
    """Something that is not an image, or a broken one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class RefusedError(Exception):
    """An image is refused, with a complete reason; messages of decoders need an explanation around them."""


@contextmanager
def opened(encoded: Encoded | Image.Image, name: str) -> Iterator[Image.Image]:
    """The image before its pixels are decoded. Every error until it is closed becomes an `UnreadableImage`."""
    # Not `warnings.catch_warnings`: of two threads, one would undo the filters of the other.
    if tuple(warnings.filters[:1]) != (_PIL_WARNINGS,):
        warnings.filterwarnings("ignore", module=_PIL_WARNINGS[3].pattern)
    # On arbitrary bytes, decoders raise nearly every kind of exception.
    try:
        if isinstance(encoded, Image.Image):
            yield encoded.copy()  # decoding at a fraction of the size would change the caller's image
        elif isinstance(encoded, np.ndarray):
            yield _from_array(encoded)
        else:
            with _file(encoded) as file, _identified(file) as image:
                yield image
    except Exception as error:
        raise UnreadableImage(name, _reason(error)) from error


def _silence_decoders() -> None:
    """Keep decoders from printing: a fault in an image either raises an error or does not matter."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    # libtiff prints on the terminal, past Python. Its handler is replaced once for all threads; to redirect the
    # terminal around each image instead would be a race between them. The symbol is found through PIL's own library.
    try:
        set_error_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
    except (AttributeError, OSError):
        return  # PIL was built without libtiff, or in a way that hides it.
    set_error_handler.argtypes, set_error_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
    set_error_handler(None)


_silence_decoders()


def _file(encoded: str | bytes) -> BinaryIO:
    if isinstance(encoded, bytes):
        size = len(encoded)
    else:
        status = os.stat(encoded)  # A Path takes six times as long.
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError("not a regular file")  # Reading a pipe or a device might never end.
        size = status.st_size
    if size == 0:
        raise RefusedError("the file is empty")
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else io.BufferedReader(io.FileIO(encoded), _BUFFER)


def _identified(file: BinaryIO) -> Image.Image:
    try:
        image = Image.open(file, formats=_FORMATS)
    except UnidentifiedImageError as error:
        file.seek(0)
        raise RefusedError(_why_unidentified(file.read(16))) from error
    if image.format == "PNG" and "exif" not in image.info:
        image.info.update(_exif_behind_pixels(file))
    if image.info.get("progressive"):
        _refuse_many_scans(file)
    return image


def _why_unidentified(start: bytes) -> str:
    for format in _FORMATS:
        accept = Image.OPEN[format][1]
        accepted = accept(start) if accept else False
        if accepted:
            # PIL returns a sentence if it was built without that decoder.
            return accepted if isinstance(accepted, str) else f"the header of this {format} is broken or cut off"
    return f"not an image, or of another kind than {', '.join(_FORMATS)}"


def _exif_behind_pixels(file: BinaryIO) -> dict[str, bytes]:
    """The EXIF at the end of a PNG. PIL decodes the pixels to find it; this skips them."""
    position = file.tell()
    file.seek(8)
    found = {}
    while len(chunk := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", chunk)
        if kind == b"eXIf":
            found["exif"] = b"Exif\0\0" + file.read(min(length, 2**20))
            break
        file.seek(length + 4, os.SEEK_CUR)
    file.seek(position)
    return found


def _refuse_many_scans(file: BinaryIO) -> None:
    position = file.tell()
    file.seek(0)
    scans = _count_scans(file.read())
    file.seek(position)
    if scans > _MAX_SCANS:
        raise RefusedError(f"a JPEG of {scans} scans, which would take very long to decode")


def _count_scans(jpeg: bytes) -> int:
    """Go from marker to marker, up to the end of the image: the file may continue with any bytes."""
    scans, place = 0, 2
    while marker := _MARKER.search(jpeg, place):
        kind = jpeg[marker.end() - 1]
        if kind == _END_OF_IMAGE:
            break
        scans += kind == _START_OF_SCAN
        place = marker.end() + int.from_bytes(jpeg[marker.end() : marker.end() + 2], "big")
    return scans


def _from_array(pixels: NDArray[np.uint8]) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise RefusedError(f"an array {pixels.shape} of {pixels.dtype}; it must be height, width, 3 of uint8")
    return Image.fromarray(pixels)


def _reason(error: Exception) -> str:
    if isinstance(error, (RefusedError, Image.DecompressionBombError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # Its text would repeat the path.
    # A decoder may say very little: "decoder error -2", or nothing but MemoryError.
    return f"cannot be decoded ({str(error) or type(error).__name__})"
