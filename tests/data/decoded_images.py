"""The formats of images, and the pixels that are read from one."""

import numpy as np
from PIL import features

from flexpredict.data.decoding import Encoded, decode

BUILT_IN = [format for format, name in (("AVIF", "avif"), ("JPEG2000", "jpg_2000")) if features.check(name)]
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", *BUILT_IN]


def read(
    encoded: Encoded,
    image_size: tuple[int, int],
    box: tuple[int, int, int, int] | None = None,
    mirror: bool = False,
) -> np.ndarray:
    """H W 3, integers of which differences can be taken."""
    pixels = decode(encoded, "it", image_size, lambda height, width: box or (0, 0, width, height), mirror)
    return pixels.permute(1, 2, 0).int().numpy()
