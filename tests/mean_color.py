"""An encoder whose features can be computed by hand."""

import torch
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder, Tokens


class MeanColor(ImageEncoder):
    """The mean color of each 8x8 patch. Counts what it is asked for."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__("color", "the mean color", 3, 1, (8, 8), (32, 32), "mean", (0.0,) * 3, (1 / 255,) * 3)
        self.scale = torch.nn.Parameter(torch.tensor(scale))
        self.seen = 0
        self.fails_after = 10**9

    def _tokens(self, images: Tensor, count: int) -> list[Tokens]:
        self.seen += len(images)
        if self.seen > self.fails_after:
            raise KeyboardInterrupt
        return [Tokens(torch.nn.functional.avg_pool2d(images, 8).flatten(2).mT * self.scale, None)]
