"""An image file, cropped and resized to 8-bit RGB, upright, in one pass.

Only what is needed is decoded: the crop is chosen from the size in the header, and a JPEG much larger than the
output is then decoded at a half, a quarter or an eighth. What is not plain RGB is treated so:

- turned upright by its EXIF orientation;
- greyscale, palette and CMYK converted; of an animation the first frame;
- transparency laid on white, for which most drawings and product pictures were made;
- 16-bit greyscale scaled from its full range, 0 to 65535. Pixels of 32 bits have no agreed range and are refused;
  so is anything beyond PIL's limit for decompression bombs, 179 million pixels.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

Box = tuple[int, int, int, int]  # left, top, right, bottom
Turn = tuple[bool, bool, bool]  # transpose, then mirror left-right, then top-bottom

# A JPEG is decoded at reduced scale as long as this many of its pixels, along each side, remain for a pixel of the
# output: the box, rounded to whole reduced pixels, is then off by a quarter of an output pixel at most.
_PIXELS_LEFT = 2.0
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
    """A file that is no image, or a broken one."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def decode(
    path: str, image_size: tuple[int, int], choose_box: Callable[[int, int], Box], mirror: bool = False
) -> Tensor:
    """One crop of a file: 3 H W uint8. `choose_box` is told the height and the width of the image."""
    # Decoders meet arbitrary bytes here, and raise nearly every kind of exception over them.
    try:
        with Image.open(path) as image:
            if image.format == "TIFF":
                image.load()  # Which turns it upright.
            height, width = _upright_size(image)
            turn = transposed, mirrored, upended = _turn(image)
            box = _in_stored_image(choose_box(height, width), height, width, turn)
            pixels = _load_crop(image, box, image_size[::-1] if transposed else image_size)
    except Exception as error:
        raise UnreadableImage(path, _reason(error)) from error
    if transposed:
        pixels = pixels.mT
    if upended:
        pixels = pixels.flip(1)
    return pixels.flip(2) if mirrored != mirror else pixels


def read_size(path: str) -> tuple[int, int]:
    """Height and width of the upright image, from the header of the file."""
    try:
        with Image.open(path) as image:
            return _upright_size(image)
    except Exception as error:
        raise UnreadableImage(path, _reason(error)) from error


def _load_crop(image: Image.Image, box: Box, image_size: tuple[int, int]) -> Tensor:
    """3 H W uint8. The crop is made before any conversion, which then costs less."""
    left, top, right, bottom = box
    reduction = min((right - left) / image_size[1], (bottom - top) / image_size[0]) / _PIXELS_LEFT
    if reduction >= 2:
        width = image.width
        draft = image.draft(None, (int(image.width / reduction), int(image.height / reduction)))
        if draft is not None:
            scale = draft[1][2] / width
            left, top, right, bottom = (round(edge * scale) for edge in box)
    pixels = np.array(_rgb(image.crop((left, top, right, bottom))))
    # The same triangle filter as PIL's and as `crop_arrays`, a third faster than PIL.
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    return F.interpolate(planes, size=image_size, mode="bilinear", antialias=True)[0]


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        image = _eight_bits(image)
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image)
    if pixels.dtype.kind == "f" or pixels.min() < 0 or pixels.max() > 65535:
        raise ValueError("pixels beyond 16 bits have no agreed range; convert the file to 8 or 16 bits")
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
        # The base class's method, as that of PNG decodes the whole image to look for EXIF behind the pixels.
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except Exception:
        orientation = 1  # Broken EXIF does not make an image unreadable.
    return _UPRIGHT.get(orientation, _UPRIGHT[1])


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image that PIL can identify"
    # The text of an OSError repeats the path, or its file is truncated and it has no other.
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
