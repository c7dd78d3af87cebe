"""Random views of images: crops, mirroring, blur and grayscale.

Random choices for a sample depend only on its key, and so does every pixel of the result. Weights of all sums over
pixels are multiples of 2^-16, and pixels are whole numbers below 256. float32 adds those without rounding, in any
order, so the result is the same for any batch size, thread count or BLAS.
"""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flexpredict.randomness import uniform
from flexpredict.settings.augmentation import Augmentation

_TRIES = 10
_STEPS = 2**16
# Values of a batch that are processed at a time: as floats, they stay in the processor's cache.
_AT_ONCE = 2**18


@dataclass(frozen=True)
class Crops:
    """The random choices for each image of a batch. The box follows once the size of the image is known.

    In NumPy, because one row is read for each file, which is slow in torch.
    """

    areas: NDArray[np.float64]  # B T, fraction of the image; one column for each try
    aspects: NDArray[np.float64]  # B T
    aspect_limits: tuple[float, float]
    places: NDArray[np.float64]  # B 2 in [0, 1), vertical and horizontal
    flip: NDArray[np.bool_]  # B
    blur_sigma: NDArray[np.float64]  # B, 0 where the image stays sharp
    grayscale: NDArray[np.bool_]  # B

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> "Crops":
        arrays = {
            field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "aspect_limits"
        }
        return replace(self, **arrays)

    def box(self, row: int, image_size: tuple[int, int], height: int, width: int) -> tuple[int, int, int, int]:
        """Left, top, right, bottom in whole pixels, for an image of this height and width.

        This is the first try that fits into the image; if none does, the largest centered box with an allowed
        aspect. It is the rule of torchvision's RandomResizedCrop.
        """
        shape = image_size[1] / image_size[0]
        vertical, horizontal = self.places[row].tolist()
        for area, aspect in zip(self.areas[row].tolist(), self.aspects[row].tolist(), strict=True):
            pixels, ratio = height * width * area, aspect * shape
            box_width, box_height = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
            if 1 <= box_width <= width and 1 <= box_height <= height:
                left = math.floor(horizontal * (width - box_width + 1))
                top = math.floor(vertical * (height - box_height + 1))
                return left, top, left + box_width, top + box_height
        low, high = self.aspect_limits
        ratio = min(max(width / height, low * shape), high * shape)
        box_width = max(1, round(min(width, height * ratio)))
        box_height = max(1, round(min(height, width / ratio)))
        left, top = (width - box_width) // 2, (height - box_height) // 2
        return left, top, left + box_width, top + box_height


def draw_crops(augmentation: Augmentation, keys: Tensor) -> Crops:
    """Draw for samples by keys: B int64. Each choice has its own numbers: blurring more does not move the crops."""
    numbers = uniform(keys, 2 * _TRIES + 6).double().numpy()
    areas, aspects = numbers[:, :_TRIES], numbers[:, _TRIES : 2 * _TRIES]
    limits = augmentation.crop_aspect
    if augmentation.crop_scale is None:
        areas, aspects, limits = areas[:, :0], aspects[:, :0], (1.0, 1.0)
    else:
        areas = _between(augmentation.crop_scale, areas)
        aspects = np.exp(_between((math.log(limits[0]), math.log(limits[1])), aspects))
    vertical, horizontal, flip, blur, sigma, grayscale = numbers[:, 2 * _TRIES :].T
    return Crops(
        areas,
        aspects,
        limits,
        np.stack((vertical, horizontal), axis=1),
        flip < augmentation.flip,
        np.where(blur < augmentation.blur, _between(augmentation.blur_sigma, sigma), 0.0),
        grayscale < augmentation.grayscale,
    )


def crop_arrays(images: Tensor, crops: Crops, image_size: tuple[int, int]) -> Tensor:
    """Crop, resize and mirror a batch of equally large images: B H W 3 uint8 -> B 3 h w uint8.

    Resizing is linear and separable: two matrix products, with the columns (W x w) and the rows (h x H).
    """
    count, height, width, _ = images.shape
    boxes = torch.tensor([crops.box(row, image_size, height, width) for row in range(count)]).float()
    columns = _resizing(boxes[:, 0], boxes[:, 2], width, image_size[1])
    columns = torch.where(torch.from_numpy(crops.flip)[:, None, None], columns.flip(1), columns).transpose(1, 2)
    rows = _resizing(boxes[:, 1], boxes[:, 3], height, image_size[0])
    cropped = torch.empty(count, 3, *image_size, dtype=torch.uint8)
    for part in _parts(count, height * width * 3):
        planes = images[part].permute(0, 3, 1, 2).float()
        planes = torch.bmm(planes.flatten(1, 2), columns[part]).add_(0.5).floor_().view(-1, 3, height, image_size[1])
        for channel in range(3):
            cropped[part, channel] = torch.bmm(rows[part], planes[:, channel]).add_(0.5)
    return cropped


def blur_and_grayscale(images: Tensor, crops: Crops) -> Tensor:
    """Blur images and make them gray, in place, if that was drawn for them: B 3 h w uint8."""
    sigmas = torch.from_numpy(crops.blur_sigma)
    # Sorted by width, so that images processed together have kernels of about one size.
    blurred = sigmas.argsort()[int((sigmas == 0).sum()) :]
    for part in _parts(len(blurred), images[0].numel()):
        _put(images, blurred[part], _blur(images.index_select(0, blurred[part]), sigmas[blurred[part]]))
    gray = torch.from_numpy(crops.grayscale).nonzero()[:, 0]
    for part in _parts(len(gray), images[0].numel()):
        _put(images, gray[part], _grayscale(images.index_select(0, gray[part])))
    return images


def _resizing(start: Tensor, stop: Tensor, size: int, out_size: int) -> Tensor:
    """Weights of each input pixel in each output pixel, for the box [start, stop) resized to out_size: B out in.

    A triangle over the input, as wide as two input or two output pixels, whichever are larger, and cut off at the
    borders of the box: as PIL and torchvision resize an image that was cropped before.
    """
    scale = ((stop - start) / out_size)[:, None, None]
    centers = start[:, None, None] + (torch.arange(out_size)[:, None] + 0.5) * scale
    pixels = torch.arange(size) + 0.5
    weights = (1 - (pixels - centers).abs_().div_(scale.clamp(min=1))).clamp_(min=0)
    inside = (pixels > start[:, None]) & (pixels < stop[:, None])
    return _normalized(weights.mul_(inside[:, None]))


def _blur(images: Tensor, sigmas: Tensor) -> Tensor:
    """Gaussian blur, cut off at 3 sigma, edges repeated: b 3 h w uint8, b -> b 3 h w float32."""
    radii = (3 * sigmas).ceil()
    radius = int(radii.max())
    taps = torch.arange(-radius, radius + 1).double()
    weights = torch.exp(-0.5 * (taps / sigmas[:, None]) ** 2) * (taps.abs() <= radii[:, None])
    kernels = _normalized(weights).float()  # b k
    wide = F.pad(images.float(), (radius, radius, 0, 0), mode="replicate")
    tall = F.pad(_weighted_sum(wide, kernels, dim=3), (0, 0, radius, radius), mode="replicate")
    return _weighted_sum(tall, kernels, dim=2)


def _weighted_sum(planes: Tensor, kernels: Tensor, dim: int) -> Tensor:
    """Each image convolved with a kernel of its own along one dimension, rounded: b 3 h w, b k -> b 3 h w.

    Tap by tap, which takes less than half the time of a grouped convolution for so few channels.
    """
    first, *others = kernels[:, :, None, None, None].unbind(dim=1)
    size = planes.shape[dim] - len(others)
    total = planes.narrow(dim, 0, size) * first
    for tap, weight in enumerate(others, start=1):
        total.addcmul_(planes.narrow(dim, tap, size), weight)
    return total.add_(0.5).floor_()


def _grayscale(images: Tensor) -> Tensor:
    """ITU-R 601 luma in 16-bit fixed point, as PIL's: b 3 h w uint8 -> b h w int32."""
    red, green, blue = images.int().unbind(dim=1)
    return (19595 * red + 38470 * green + 7471 * blue + _STEPS // 2) // _STEPS


def _put(images: Tensor, rows: Tensor, values: Tensor) -> None:
    """images[rows] = values, which torch does byte by byte and thirty times slower."""
    for row, value in zip(rows.tolist(), values, strict=True):
        images[row] = value


def _normalized(weights: Tensor) -> Tensor:
    """Scale weights in 0 … 1 to a sum of one over the last dimension, rounded to multiples of 2^-16."""
    weights = (weights * _STEPS).round_()
    return weights.div_(weights.sum(dim=-1, keepdim=True)).mul_(_STEPS).round_().div_(_STEPS)


def _between(limits: tuple[float, float], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return limits[0] + (limits[1] - limits[0]) * numbers


def _parts(count: int, values_each: int) -> list[slice]:
    step = max(1, _AT_ONCE // values_each)
    return [slice(first, min(first + step, count)) for first in range(0, count, step)]
