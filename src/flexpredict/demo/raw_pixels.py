"""Shrunken images as features: a baseline without any encoder."""

import torch.nn.functional as F
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.settings.extraction import Pooling

_SHRUNK = 4  # factor in each direction


class RawPixels(ImageEncoder):
    """Pixels of images shrunk four times, in the same patches as the encoders to compare with."""

    def __init__(self, image_size: tuple[int, int], patch_size: int) -> None:
        self.cell = max(1, patch_size // _SHRUNK)
        what = f"raw pixels, {self.cell} of {patch_size} in each direction"
        super().__init__(
            what, what, 3 * self.cell**2, 1, (patch_size, patch_size), image_size, "mean", (0.0,) * 3, (1.0,) * 3
        )

    def _pooled(
        self, pixels: Tensor, count: int, pooling: Pooling | None, layers: list[Tokens] | None = None
    ) -> Tensor:
        """All pixels as one vector, without pooling."""
        return self._tokens(pixels, count)[0].patches.flatten(1)

    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        shrunk = F.avg_pool2d(pixels, self.patch_size[0] // self.cell)
        return [Tokens(F.unfold(shrunk, self.cell, stride=self.cell).mT, None)]
