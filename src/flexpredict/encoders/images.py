"""Converts images (a tensor, an array, a PIL image or a list of these) to one batch."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image as PILImage
from torch import Tensor

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.decoding import decode
from flexpredict.data.image_files import UnreadableImage
from flexpredict.errors import UserError
from flexpredict.settings.augmentation import PRESETS

Image: TypeAlias = Tensor | NDArray[Any] | PILImage
Images: TypeAlias = Image | Sequence[Image]

_ACCEPTED = (
    "Give uint8 pixels (0 to 255) or normalized floats, as 3 H W, H W 3, B 3 H W or B H W 3; a PIL image; or a list."
)


def as_batch(images: Images, image_size: tuple[int, int]) -> Tensor:
    """B 3 H W, uint8 or floating point.

    Tensors and arrays keep their size. PIL images are cropped to the largest centered box with the shape of
    `image_size` (height, width) and resized to it, as in every evaluation. An empty list gives an empty batch.
    """
    if isinstance(images, Tensor | np.ndarray) and images.ndim == 4:
        return _channels_first(_tensor(images))
    if not isinstance(images, Sequence):
        return _single(images, image_size)[None]
    singles = [_single(image, image_size) for image in images]
    if not singles:
        return torch.empty(0, 3, *image_size, dtype=torch.uint8)
    kinds = {(str(image.dtype).removeprefix("torch."), *image.shape[1:]) for image in singles}
    if len(kinds) > 1:
        shown = " and ".join(f"{dtype} of {height}x{width}" for dtype, height, width in sorted(kinds)[:2])
        raise UserError(f"The images of a list must have the same size and type; these are {shown}. Resize them.")
    return torch.stack(singles)


def _single(image: Image, image_size: tuple[int, int]) -> Tensor:
    """3 H W."""
    if isinstance(image, PILImage):
        return _photo(image, image_size)
    if not isinstance(image, Tensor | np.ndarray):
        raise UserError(f"An object of type {type(image).__name__} is not an image. {_ACCEPTED}")
    if image.ndim != 3:
        raise UserError(f"An array of shape {_shape(image)} is not an image. {_ACCEPTED}")
    return _channels_first(_tensor(image)[None])[0]


def _photo(image: PILImage, image_size: tuple[int, int]) -> Tensor:
    crops = draw_crops(PRESETS["none"], torch.zeros(1, dtype=torch.int64))
    try:
        return decode(image, "a PIL image", image_size, lambda height, width: crops.box(0, image_size, height, width))
    except UnreadableImage as error:
        raise UserError(f"An image cannot be used: {error.reason}.") from error


def _tensor(image: Tensor | NDArray[Any]) -> Tensor:
    tensor = torch.as_tensor(image)
    if tensor.dtype != torch.uint8 and not tensor.is_floating_point():
        raise UserError(f"Images of {str(tensor.dtype).removeprefix('torch.')} are not accepted. {_ACCEPTED}")
    return tensor


def _channels_first(batch: Tensor) -> Tensor:
    """B 3 H W or B H W 3 -> B 3 H W."""
    if batch.shape[1] == 3:
        return batch
    if batch.shape[3] == 3:
        return batch.permute(0, 3, 1, 2)
    raise UserError(f"Images of shape {_shape(batch)} have no three color channels. {_ACCEPTED}")


def _shape(image: Tensor | NDArray[Any]) -> str:
    return " ".join(map(str, image.shape))
