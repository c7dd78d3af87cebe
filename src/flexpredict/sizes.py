"""Types of sizes. The height always comes first."""

from collections.abc import Iterable
from typing import TypeAlias

from flexpredict.errors import UserError

Size: TypeAlias = tuple[int, int]  # height and width: of an image in pixels, of a block in patches
Grid: TypeAlias = tuple[int, int]  # rows and columns of the patches of an image


DEFAULT_IMAGE_SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
_PATCH_SIZES = (32, 16, 14, 12, 8, 6, 4, 2)
FEWEST_PATCHES = 8  # along each side: fewer leave blocks too few positions


def default_image_size(sizes: Iterable[Size]) -> int:
    """The largest of the usual sizes (32 to 224) that is not above the median shorter side of these images."""
    sides = sorted(map(min, sizes))
    if not sides:
        raise UserError("No image could be read, so image_size is unknown. Set image_size, or repair the images.")
    median = sides[len(sides) // 2]
    return max((size for size in DEFAULT_IMAGE_SIZES if size <= median), default=DEFAULT_IMAGE_SIZES[0])


def default_patch_size(image_size: Size, models_own: int) -> int:
    """The model's own if that gives at least 8x8 patches, else the largest that does and divides the image."""
    for size in (models_own, *(size for size in _PATCH_SIZES if size < models_own)):
        if min(image_size) // size >= FEWEST_PATCHES and not any(side % size for side in image_size):
            return size
    return models_own
