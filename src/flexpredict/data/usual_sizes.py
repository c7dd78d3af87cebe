"""Sizes of images and patches for data about which nobody has said any."""

from collections.abc import Iterable

from flexpredict.errors import UserError

USUAL_IMAGE_SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
_USUAL_PATCH_SIZES = (32, 16, 14, 12, 8, 6, 4, 2)
_FEWEST_PATCHES = 8  # along each side: fewer leave too little choice of where blocks lie


def usual_image_size(sizes: Iterable[tuple[int, int]]) -> int:
    """The usual size nearest below the median shorter side, from 32 to 224. sizes: heights and widths of images."""
    sides = sorted(map(min, sizes))
    if not sides:
        raise UserError("No image could be read, so there is no usual size. Give image_size, or mend the images.")
    median = sides[len(sides) // 2]
    return max((size for size in USUAL_IMAGE_SIZES if size <= median), default=USUAL_IMAGE_SIZES[0])


def usual_patch_size(image_size: tuple[int, int], models_own: int) -> int:
    """The model's own where that gives a grid of at least 8x8, else the largest that does and divides the image."""
    for size in (models_own, *(size for size in _USUAL_PATCH_SIZES if size < models_own)):
        if min(image_size) // size >= _FEWEST_PATCHES and not any(side % size for side in image_size):
            return size
    return models_own
