"""Videos of a few small frames, and an encoder whose features are pixels."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.results import Result

SIZE, FRAMES, NAMES = 48, 5, ("first", "second")


class PatchColors(ImageEncoder):
    """Features of a patch are its pixels. Counts the frames it was shown, and breaks after so many."""

    def __init__(self, channels: int = 3, breaks_after: int | None = None) -> None:
        super().__init__("colors", "the colors of patches", 48, 1, (4, 4), (SIZE, SIZE), "mean")
        self.project = nn.Conv2d(channels, 48, 4, stride=4, bias=False)
        with torch.no_grad():
            self.project.weight.copy_(torch.eye(48).view(48, 3, 4, 4)[:, :channels])
        self.shown, self.breaks_after = 0, breaks_after

    def _tokens(self, images: Tensor, count: int) -> list[Tokens]:
        self.shown += len(images)
        if self.breaks_after is not None and self.shown > self.breaks_after:
            raise KeyboardInterrupt
        return [Tokens(self.project(images).flatten(2).mT, None)]


def evaluate(data: Path | str, out: Path, encoder: ImageEncoder | None = None, **options: Any) -> Result:
    options = {"height": SIZE, "overlays": "none", **options}
    return evaluate_davis(encoder or PatchColors(), data=data, out=out, accelerator="cpu", **options)


def scored(masks: Path, data: Path | str, out: Path) -> Result:
    return evaluate_davis(data=data, score_only=masks, out=out, accelerator="cpu")
