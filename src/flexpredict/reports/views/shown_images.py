"""The images of a page: a few to explore, and more to search for neighbors."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.sources.image_source import ImageSource, class_name, evenly_spaced
from flexpredict.errors import UserError
from flexpredict.reports.views.packing import jpeg
from flexpredict.settings.augmentation import PRESETS
from flexpredict.sizes import Size

_GALLERY = 96  # images to search for neighbors
_SHOWN_SIDE = 224  # pixels of the longer side, at least
_THUMBNAIL_SIDE = 96


@dataclass(frozen=True, eq=False)
class ShownImages:
    """Images in the size that a model expects.

    Args:
        indices: G, of the gallery, in the source.
        explored: K, rows of the gallery to explore.
    """

    source: ImageSource
    image_size: Size
    indices: Tensor
    explored: Tensor

    def pixels(self, rows: Tensor, size: Size | None = None) -> Tensor:
        """Rows of the gallery, each center-cropped to the aspect ratio of the size and resized: B 3 H W uint8."""
        return _read(self.source, self.indices[rows], size or self.image_size)[0]

    def name(self, row: int) -> str:
        return self.source.describe(int(self.indices[row]))

    def class_name(self, row: int) -> str:
        return class_name(self.source, int(self.indices[row]))

    def described(self) -> dict[str, Any]:
        """The explored images as data for the page. Equal sets have equal keys."""
        factor = max(1, math.ceil(_SHOWN_SIDE / max(self.image_size)))
        size = self.image_size[0] * factor, self.image_size[1] * factor
        images = [
            {"name": self.name(row), "class": self.class_name(row), "uri": jpeg(pixels)}
            for row, pixels in zip(self.explored.tolist(), self.pixels(self.explored, size), strict=True)
        ]
        digest = hashlib.blake2b("".join(image["uri"] for image in images).encode(), digest_size=8).hexdigest()
        return {"key": digest, "data": self.source.name, "height": size[0], "width": size[1], "images": images}

    def thumbnail(self, row: int) -> str:
        height, width = self.image_size
        scale = _THUMBNAIL_SIDE / max(height, width)
        size = max(1, round(height * scale)), max(1, round(width * scale))
        return jpeg(self.pixels(torch.tensor([row]), size)[0], quality=80)


def choose_images(source: ImageSource, image_size: Size, explored: int) -> ShownImages:
    """Evenly spaced images of the source, so that all classes are likely to appear; unreadable ones are left out."""
    indices = torch.tensor(evenly_spaced(len(source), _GALLERY), dtype=torch.int64)
    _, unreadable = _read(source, indices, (16, 16))
    indices = indices[[row for row in range(len(indices)) if row not in unreadable]]
    if not len(indices):
        raise UserError(f"No image of {source.name} can be read. Set `images` to others.")
    return ShownImages(source, image_size, indices, torch.tensor(evenly_spaced(len(indices), explored)))


def _read(source: ImageSource, indices: Tensor, size: Size) -> tuple[Tensor, dict[int, Any]]:
    images, unreadable = source.read(indices, draw_crops(PRESETS["none"], torch.zeros_like(indices)), size)
    return images, dict(unreadable)
