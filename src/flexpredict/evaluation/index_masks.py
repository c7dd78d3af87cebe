"""Index masks: each pixel holds the number of its object or class. Read and written as PNG, and drawn over images."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flexpredict.errors import UserError, in_a_line

Mask: TypeAlias = NDArray[np.uint8]  # H W: 0 for the background, k for object k, VOID for undecided pixels
VOID = 255

_OPACITY = 0.5
_MODES = ("P", "L", "1")  # palette, grayscale, black and white: one number for each pixel
# Colors of PASCAL VOC, which DAVIS uses too: the bits of the number, three at a time from the lowest, become the bits
# of red, green and blue from the highest. 256 3
_NUMBERS, _BITS, _CHANNELS = np.arange(256)[:, None, None], np.arange(8)[:, None], np.arange(3)
PALETTE: NDArray[np.uint8] = (((_NUMBERS >> (3 * _BITS + _CHANNELS) & 1) << 7 - _BITS).sum(axis=1)).astype(np.uint8)


def read_mask(path: Path) -> Mask:
    with _opened(path) as image:
        return np.array(image, np.uint8)


def read_mask_size(path: Path) -> tuple[int, int]:
    """Height and width, from the header of an index mask."""
    with _opened(path) as image:
        return image.height, image.width


def write_mask(mask: Mask, path: Path) -> None:
    image = Image.fromarray(np.ascontiguousarray(mask, np.uint8))
    image.putpalette(PALETTE.tobytes())
    image.save(path, "PNG")


def overlaid(frame: NDArray[np.uint8], mask: Mask) -> NDArray[np.uint8]:
    """frame: H W 3, mask: H W -> H W 3: objects in their colors, with an outline."""
    objects = mask > 0
    outline = np.zeros(mask.shape, bool)
    for axis in (0, 1):
        changes = np.diff(mask.astype(np.int16), axis=axis) != 0
        before, after = (slice(None, -1), slice(1, None)) if axis == 0 else (np.s_[:, :-1], np.s_[:, 1:])
        outline[before] |= changes
        outline[after] |= changes
    picture = frame.copy()
    picture[objects] = (1 - _OPACITY) * frame[objects] + _OPACITY * PALETTE[mask[objects]]
    picture[outline & objects] = 255
    return picture


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            if image.mode not in _MODES:
                raise UserError(
                    f"{path} is an image of mode {image.mode}, not an index mask, whose pixels are numbers (a PNG "
                    "with a palette, or 8-bit grayscale). Use the masks as they were published, not converted."
                )
            yield image
    except (OSError, SyntaxError) as error:  # PIL reports some broken PNGs as syntax errors
        reason = "it is missing" if isinstance(error, FileNotFoundError) else in_a_line(error)
        raise UserError(f"The mask {path} cannot be read: {reason}. Copy or make it again.") from error
