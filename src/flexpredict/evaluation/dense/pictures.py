"""Pictures to look at: an image, its true map and the predicted one, side by side."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flexpredict.data.decoding import Encoded, upright
from flexpredict.files import write_atomically

_SIDE = 240  # pixels of the shorter side
_GAP = 4


def frame_of(encoded: Encoded, name: str) -> NDArray[np.uint8]:
    """The whole image at the size of pictures: H W 3."""
    image = upright(encoded, name)
    scale = _SIDE / min(image.size)
    size = round(image.width * scale), round(image.height * scale)
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR))


def fitted_to(frame: NDArray[np.uint8], pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A map in the size of the frame, its values unchanged. pixels: h w or h w 3."""
    return np.asarray(Image.fromarray(pixels).resize(frame.shape[1::-1], Image.Resampling.NEAREST))


def side_by_side(*panels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """H W 3 each, of one height."""
    gap = np.full((panels[0].shape[0], _GAP, 3), 255, np.uint8)
    return np.concatenate([part for panel in panels for part in (gap, panel)][1:], axis=1)


def write_pictures(pictures: Mapping[str, NDArray[np.uint8]], folder: Path) -> None:
    """Each as a PNG that has the name of its image."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in pictures.items():
        path = folder / f"{re.sub(r'[^0-9A-Za-z_]+', '-', Path(name).stem).strip('-')}.png"
        write_atomically(path, partial(Image.fromarray(pixels).save, format="PNG"))
