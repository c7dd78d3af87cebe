"""An image, cropped and resized to 8-bit RGB, upright, in one pass.

Only what is needed is decoded: the crop is chosen from the size in the header, and a JPEG much larger than the
output is then decoded at a half, a quarter or an eighth. What is not plain RGB is treated so:

- turned upright by its EXIF orientation;
- greyscale, palette and CMYK converted; of an animation the first frame;
- transparency laid on white, for which most drawings and product pictures were made;
- 16-bit greyscale scaled from its full range, 0 to 65535. Pixels of 32 bits have no agreed range and are refused;
  so is anything beyond PIL's limit for decompression bombs, 179 million pixels.
"""

import io
import logging
import os
import re
import stat
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

Encoded: TypeAlias = str | bytes | NDArray[np.uint8]  # the path of a file, the content of one, or pixels H W 3
Box = tuple[int, int, int, int]  # left, top, right, bottom
Turn = tuple[bool, bool, bool]  # transpose, then mirror left-right, then top-bottom

# What PIL may take a file for. It knows more, but of those some run other programs (EPS) and most are hardly used.
_MEANT = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "JPEG2000", "PPM")
Image.init()
_FORMATS = tuple(format for format in _MEANT if format in Image.OPEN)  # AVIF came with Pillow 11.3.
# PIL reads headers a few bytes at a time, which with its own small buffer takes a fifth of the time of a small JPEG.
_BUFFER = 2**17
# What is odd about an image either makes it unreadable, and is then raised, or does not matter.
logging.getLogger("PIL").addHandler(logging.NullHandler())
_SILENCE = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
# Pixels that are converted at a time.
_STRIP = 2**22
# A progressive JPEG has about ten scans. Each takes as long as decoding the image: thousands are an attack.
_MOST_SCANS = 200
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
# What turns the stored image upright, by EXIF orientation.
_UPRIGHT: dict[int, Turn] = {
    1: (False, False, False),
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}


class UnreadableImage(Exception):  # noqa: N818
    """Something that is no image, or a broken one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class _RefusedError(Exception):
    """A reason in our own words; those of decoders need some around them."""


@dataclass(frozen=True)
class ImageFacts:
    """What the header of an image says."""

    format: str  # "JPEG", "PNG", …, or "array"
    mode: str  # how pixels are stored, in PIL's words: "RGB", "L", "P", "CMYK", "I;16", …
    height: int  # of the upright image
    width: int
    frames: int


def decode(
    encoded: Encoded | Image.Image,
    name: str,
    image_size: tuple[int, int],
    choose_box: Callable[[int, int], Box],
    mirror: bool = False,
) -> Tensor:
    """One crop of an image: 3 H W uint8. `choose_box` is told the height and the width of the image."""
    with _opened(encoded, name) as image:
        if image.format == "TIFF":
            _load_tiff(image)
        height, width = _upright_size(image)
        turn = transposed, mirrored, upended = _turn(image)
        box = _in_stored_image(choose_box(height, width), height, width, turn)
        pixels = _load_crop(image, box, image_size[::-1] if transposed else image_size)
    if transposed:
        pixels = pixels.mT
    if upended:
        pixels = pixels.flip(1)
    return pixels.flip(2) if mirrored != mirror else pixels


def read_size(encoded: Encoded, name: str) -> tuple[int, int]:
    """Height and width of the upright image, from its header."""
    with _opened(encoded, name) as image:
        return _upright_size(image)


def image_facts(encoded: Encoded, name: str) -> ImageFacts:
    """What can be told without decoding any pixels."""
    with _opened(encoded, name) as image:
        height, width = _upright_size(image)
        return ImageFacts(image.format or "array", image.mode, height, width, _frames(image))


def upright(encoded: Encoded, name: str, shorter_side: int | None = None) -> Image.Image:
    """The whole image in 8-bit RGB, shrunk (never enlarged) until its shorter side has the given length."""
    with _opened(encoded, name) as image:
        if image.format == "TIFF":
            _load_tiff(image)
        turn = _turn(image)
        shrink = min(1.0, (shorter_side or min(image.size)) / min(image.size))
        size = round(image.width * shrink), round(image.height * shrink)
        # Twice the pixels that are needed, as these pictures are to be cropped and resized once more.
        draft = image.draft(None, (2 * size[0], 2 * size[1])) if shrink < 1 else None
        image.load()
        whole = _rgb_crop(image, (0, 0, *image.size), int(min(image.size) / min(size) / 2))
        if whole.size != size and draft:
            whole = whole.resize(size, Image.Resampling.BICUBIC, draft[1])
        elif whole.size != size:
            whole = _resized(whole, size)
        whole = whole.copy()  # Of the file that is about to be closed, only the pixels stay.
    whole.info.clear()
    steps = (Image.Transpose.TRANSPOSE, Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM)
    for wanted, step in zip(turn, steps, strict=True):
        whole = whole.transpose(step) if wanted else whole
    return whole


@contextmanager
def _opened(encoded: Encoded | Image.Image, name: str) -> Iterator[Image.Image]:
    """The image before its pixels are decoded. Whatever goes wrong with it until it is closed is its own fault."""
    # `warnings.catch_warnings` would do, but of two threads one then undoes the filters of the other.
    if tuple(warnings.filters[:1]) != (_SILENCE,):
        warnings.filterwarnings("ignore", module=_SILENCE[3].pattern)
    # Decoders meet arbitrary bytes here, and raise nearly every kind of exception over them.
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


def _file(encoded: str | bytes) -> BinaryIO:
    if isinstance(encoded, bytes):
        size = len(encoded)
    else:
        status = os.stat(encoded)  # A Path takes six times as long.
        if not stat.S_ISREG(status.st_mode):
            raise _RefusedError("not a regular file")  # Reading a pipe or a device might never end.
        size = status.st_size
    if size == 0:
        raise _RefusedError("the file is empty")
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else io.BufferedReader(io.FileIO(encoded), _BUFFER)


def _identified(file: BinaryIO) -> Image.Image:
    try:
        image = Image.open(file, formats=_FORMATS)
    except UnidentifiedImageError as error:
        file.seek(0)
        raise _RefusedError(_why_unidentified(file.read(16))) from error
    if image.format == "PNG" and "exif" not in image.info:
        image.info.update(_exif_behind_pixels(file))
    if image.info.get("progressive"):
        _refuse_many_scans(file)
    return image


def _refuse_many_scans(file: BinaryIO) -> None:
    position = file.tell()
    file.seek(0)
    scans = _count_scans(file.read())
    file.seek(position)
    if scans > _MOST_SCANS:
        raise _RefusedError(f"a JPEG of {scans} scans, which would take very long to decode")


def _count_scans(jpeg: bytes) -> int:
    """From marker to marker, up to the end of the image: what else is in the file may hold any bytes."""
    scans, place = 0, 2
    while marker := _MARKER.search(jpeg, place):
        kind = jpeg[marker.end() - 1]
        if kind == _END_OF_IMAGE:
            break
        scans += kind == _START_OF_SCAN
        place = marker.end() + int.from_bytes(jpeg[marker.end() : marker.end() + 2], "big")
    return scans


def _load_tiff(image: Image.Image) -> None:
    """Which turns it upright. What libtiff has to say of a broken file would go to the terminal, past everybody."""
    with open(os.devnull, "wb") as nowhere:
        terminal = os.dup(2)
        try:
            os.dup2(nowhere.fileno(), 2)
            image.load()
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def _frames(image: Image.Image) -> int:
    try:
        return getattr(image, "n_frames", 1)
    except Exception:
        return 1  # What comes after the first frame may be broken, and is not needed.


def _why_unidentified(start: bytes) -> str:
    for format in _FORMATS:
        accept = Image.OPEN[format][1]
        accepted = accept(start) if accept else False
        if accepted:
            # PIL answers with a sentence where it was built without that decoder.
            return accepted if isinstance(accepted, str) else f"the header of this {format} is broken or cut off"
    return f"not an image, or of another kind than {', '.join(_FORMATS)}"


def _exif_behind_pixels(file: BinaryIO) -> dict[str, bytes]:
    """The EXIF of a PNG may come last, where PIL finds it by decoding the pixels; this only skips them."""
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


def _from_array(pixels: NDArray[np.uint8]) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise _RefusedError(f"an array {pixels.shape} of {pixels.dtype}; it must be height, width, 3 of uint8")
    return Image.fromarray(pixels)


def _load_crop(image: Image.Image, box: Box, image_size: tuple[int, int]) -> Tensor:
    """3 H W uint8."""
    left, top, right, bottom = box
    height, width = image_size
    # A JPEG is reduced while it is decoded as long as there remains a pixel for each of the output.
    reduction = min((right - left) / width, (bottom - top) / height)
    stored_width, stored_height = image.size
    wanted = int(stored_width / reduction), int(stored_height / reduction)
    draft = image.draft(None, wanted) if reduction >= 2 else None
    if draft is not None:
        # The edges of the box are now between pixels. To round them would change the picture four times as much as
        # the reduction does, so this is PIL's to resize, which is slower but takes fractions.
        scale = draft[1][2] / stored_width
        edges = (left * scale, top * scale, right * scale, bottom * scale)
        resized = _rgb(image).resize((width, height), Image.Resampling.BILINEAR, edges)
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)
    pixels = torch.from_numpy(np.array(_rgb_crop(image, box, int(reduction / 2)))).permute(2, 0, 1)
    # The same triangle filter as PIL's and as that of `crop_arrays`, in a third of PIL's time.
    return F.interpolate(pixels[None], size=image_size, mode="bilinear", antialias=True)[0]


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """PIL's own bicubic filter, in a third of its time."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    resized = F.interpolate(pixels, size=size[::-1], mode="bicubic", antialias=True)
    return Image.fromarray(np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy()))


def _rgb_crop(image: Image.Image, box: Box, factor: int) -> Image.Image:
    """The crop in RGB; a very large one is reduced by a whole factor, strip by strip, as it would fill the memory."""
    left, top, right, bottom = box
    if factor < 2 or (right - left) * (bottom - top) <= _STRIP:
        return _rgb(image.crop(box))  # Cropped before it is converted, which then costs less.
    rows = max(1, _STRIP // (right - left) // factor) * factor
    strips = [
        _rgb(image.crop((left, start, right, min(start + rows, bottom)))).reduce(factor)
        for start in range(top, bottom, rows)
    ]
    return Image.fromarray(np.concatenate([np.asarray(strip) for strip in strips]))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        image = _eight_bits(image)
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)
    if pixels.dtype.kind == "f" or pixels.min() < 0 or pixels.max() > 65535:
        raise _RefusedError("pixels beyond 16 bits have no agreed range; convert the file to 8 or 16 bits")
    return Image.fromarray(((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8))


def _upright_size(image: Image.Image) -> tuple[int, int]:
    return image.size if _turn(image)[0] else (image.height, image.width)


def _in_stored_image(box: Box, height: int, width: int, turn: Turn) -> Box:
    """Where a box of the upright image is in the image as it is stored."""
    left, top, right, bottom = box
    transposed, mirrored, upended = turn
    if mirrored:
        left, right = width - right, width - left
    if upended:
        top, bottom = height - bottom, height - top
    return (top, left, bottom, right) if transposed else (left, top, right, bottom)


def _turn(image: Image.Image) -> Turn:
    if image.format == "TIFF":
        return _UPRIGHT[1]
    try:
        # The base class's method, as that of PNG decodes the whole image.
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
        return _UPRIGHT.get(orientation, _UPRIGHT[1])
    except Exception:
        return _UPRIGHT[1]  # Broken EXIF does not make an image unreadable.


def _reason(error: Exception) -> str:
    if isinstance(error, (_RefusedError, Image.DecompressionBombError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # Its text would repeat the path.
    # What a decoder says may be little: "decoder error -2", or nothing but MemoryError.
    return f"cannot be decoded ({str(error) or type(error).__name__})"
