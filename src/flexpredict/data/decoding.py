"""Decoding images to 8-bit RGB, upright, cropped and resized in one pass.

Only what is needed is decoded: the crop is chosen from the size in the header, and a JPEG much larger than the
output is then decoded at a half, a quarter or an eighth. What is not plain RGB is converted:

- EXIF orientation is applied;
- grayscale, palettes and CMYK become RGB; of an animation the first frame is taken;
- transparency is laid on white, for which most drawings and product pictures were made;
- 16-bit grayscale is scaled from its full range, 0 to 65535. Pixels of 32 bits have no agreed range and are refused;
  so is anything beyond PIL's limit for decompression bombs, 179 million pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from PIL import ExifTags, Image
from torch import Tensor

from flexpredict.data.image_files import Encoded, RefusedError, UnreadableImage, opened
from flexpredict.sizes import Size

__all__ = ["Box", "Encoded", "ImageFacts", "UnreadableImage", "decode", "image_facts", "read_size", "upright"]

Box: TypeAlias = tuple[int, int, int, int]  # left, top, right, bottom
_Turn: TypeAlias = tuple[bool, bool, bool]  # transpose, then mirror left-right, then top-bottom

_PIXELS_AT_ONCE = 2**22  # converted at a time


@dataclass(frozen=True)
class ImageFacts:
    """Facts from the header of an image."""

    format: str  # "JPEG", "PNG", …, or "array"
    mode: str  # how pixels are stored, in PIL's words: "RGB", "L", "P", "CMYK", "I;16", …
    height: int  # of the upright image
    width: int
    frames: int
    orientation: Any = 1  # of EXIF, where 1 is upright; None if EXIF cannot be read


def decode(
    encoded: Encoded | Image.Image,
    name: str,
    image_size: Size,
    choose_box: Callable[[int, int], Box],
    mirror: bool = False,
) -> Tensor:
    """One crop of an image: 3 H W uint8. `choose_box` is given the height and the width of the image."""
    with opened(encoded, name) as image:
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


def read_size(encoded: Encoded, name: str) -> Size:
    """Height and width of the upright image, from its header."""
    with opened(encoded, name) as image:
        return _upright_size(image)


def image_facts(encoded: Encoded, name: str) -> ImageFacts:
    """The facts of an image, without decoding any pixels."""
    with opened(encoded, name) as image:
        height, width = _upright_size(image)
        return ImageFacts(image.format or "array", image.mode, height, width, _frames(image), _orientation(image))


def upright(encoded: Encoded, name: str, shorter_side: int | None = None) -> Image.Image:
    """The whole image in 8-bit RGB, shrunk (never enlarged) until its shorter side has the given length."""
    with opened(encoded, name) as image:
        _load_tiff(image)
        turn = _turn(image)
        shrink = min(1.0, (shorter_side or min(image.size)) / min(image.size))
        size = round(image.width * shrink), round(image.height * shrink)
        # Twice the pixels that are needed, as these pictures are cropped and resized again later.
        draft = image.draft(None, (2 * size[0], 2 * size[1])) if shrink < 1 else None
        image.load()
        whole = _rgb_crop(image, (0, 0, *image.size), int(min(image.size) / min(size) / 2))
        if whole.size != size and draft:
            whole = whole.resize(size, Image.Resampling.BICUBIC, draft[1])
        elif whole.size != size:
            whole = _resized(whole, size)
        whole = whole.copy()  # The file is about to be closed: keep only the pixels.
    whole.info.clear()
    steps = (Image.Transpose.TRANSPOSE, Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM)
    for wanted, step in zip(turn, steps, strict=True):
        whole = whole.transpose(step) if wanted else whole
    return whole


def _load_tiff(image: Image.Image) -> None:
    """PIL turns a TIFF upright while it decodes the pixels; older versions know its upright size only then."""
    if image.format == "TIFF":
        image.load()


def _frames(image: Image.Image) -> int:
    try:
        return getattr(image, "n_frames", 1)
    except Exception:
        return 1  # Later frames may be broken, and are not needed.


def _load_crop(image: Image.Image, box: Box, image_size: Size) -> Tensor:
    """3 H W uint8."""
    left, top, right, bottom = box
    height, width = image_size
    # A JPEG is reduced while it is decoded, as long as at least one pixel is left for each output pixel.
    reduction = min((right - left) / width, (bottom - top) / height)
    stored_width, stored_height = image.size
    wanted = int(stored_width / reduction), int(stored_height / reduction)
    draft = image.draft(None, wanted) if reduction >= 2 else None
    if draft is not None:
        # The edges of the box are now between pixels. Rounding them would change the picture four times as much as
        # the reduction does, so PIL resizes here: it is slower, but takes fractions.
        scale = draft[1][2] / stored_width
        edges = (left * scale, top * scale, right * scale, bottom * scale)
        resized = _rgb(image).resize((width, height), Image.Resampling.BILINEAR, edges)
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)
    pixels = torch.from_numpy(np.array(_rgb_crop(image, box, int(reduction / 2)))).permute(2, 0, 1)
    # The same triangle filter as PIL's and as that of `crop_arrays`, in a third of PIL's time.
    return F.interpolate(pixels[None], size=image_size, mode="bilinear", antialias=True)[0]


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """PIL's own bicubic filter, in a third of its time. size: width, height."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    resized = F.interpolate(pixels, size=size[::-1], mode="bicubic", antialias=True)
    return Image.fromarray(np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy()))


def _rgb_crop(image: Image.Image, box: Box, factor: int) -> Image.Image:
    """The crop in RGB; a very large one is reduced by a whole factor, strip by strip, as it would fill the memory."""
    left, top, right, bottom = box
    if factor < 2 or (right - left) * (bottom - top) <= _PIXELS_AT_ONCE:
        return _rgb(image.crop(box))  # Cropped before it is converted, which then costs less.
    rows = max(1, _PIXELS_AT_ONCE // (right - left) // factor) * factor
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
        raise RefusedError("pixels beyond 16 bits have no agreed range; convert the file to 8 or 16 bits")
    return Image.fromarray(((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8))


def _upright_size(image: Image.Image) -> Size:
    return image.size if _turn(image)[0] else (image.height, image.width)


def _in_stored_image(box: Box, height: int, width: int, turn: _Turn) -> Box:
    """Convert a box in the upright image to a box in the stored image."""
    left, top, right, bottom = box
    transposed, mirrored, upended = turn
    if mirrored:
        left, right = width - right, width - left
    if upended:
        top, bottom = height - bottom, height - top
    return (top, left, bottom, right) if transposed else (left, top, right, bottom)


def _turn(image: Image.Image) -> _Turn:
    """The steps that turn the stored image upright, by its EXIF orientation."""
    orientation = _orientation(image)
    return orientation in (5, 6, 7, 8), orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)


def _orientation(image: Image.Image) -> Any:
    if image.format == "TIFF":
        return 1  # PIL turns it upright itself.
    try:
        # The base class's method, as that of PNG decodes the whole image.
        return Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except Exception:
        return None  # Broken EXIF does not make an image unreadable.
