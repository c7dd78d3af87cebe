"""Pictures to look at: an image, its true classes and the predicted ones, side by side."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flexpredict.data.decoding import Encoded, upright
from flexpredict.evaluation.index_masks import VOID, overlaid
from flexpredict.evaluation.segmentation.labels import Classes
from flexpredict.evaluation.segmentation.layouts import BACKGROUND
from flexpredict.files import write_atomically

_SIDE = 240  # pixels of the shorter side
_GAP = 4


def side_by_side(
    encoded: Encoded, name: str, truth: NDArray[np.uint8], predicted: NDArray[np.uint8], classes: Classes
) -> NDArray[np.uint8]:
    """truth, predicted: H W, indices of classes -> an RGB picture. Background and void are left as they are."""
    image = upright(encoded, name)
    scale = _SIDE / min(image.size)
    size = round(image.width * scale), round(image.height * scale)
    frame = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
    gap = np.full((size[1], _GAP, 3), 255, np.uint8)
    masks = [np.asarray(Image.fromarray(_colors(mask, classes)).resize(size, Image.Resampling.NEAREST))
             for mask in (truth, np.where(truth == VOID, VOID, predicted).astype(np.uint8))]  # fmt: skip
    return np.concatenate([frame, gap, overlaid(frame, masks[0]), gap, overlaid(frame, masks[1])], axis=1)


def write_pictures(pictures: Mapping[str, NDArray[np.uint8]], folder: Path) -> None:
    """Each as a PNG that has the name of its image."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in pictures.items():
        path = folder / f"{re.sub(r'[^0-9A-Za-z_]+', '-', Path(name).stem).strip('-')}.png"
        write_atomically(path, partial(Image.fromarray(pixels).save, format="PNG"))


def _colors(mask: NDArray[np.uint8], classes: Classes) -> NDArray[np.uint8]:
    """Numbers of the palette, 0 for what is left as it is."""
    has_background = classes.names[0] == BACKGROUND
    return np.where(mask == VOID, 0, mask + (not has_background)).astype(np.uint8)
