"""How dense tasks are measured: segmentation and depth."""

from dataclasses import dataclass

from flexpredict.errors import UserError
from flexpredict.settings.ranges import check_ranges, ranged


@dataclass(frozen=True)
class Segmenting:
    """How heads for the class of a patch are fitted.

    Args:
        patches: patches to fit on, drawn evenly from all training images.
        neighbors: k of the k-NN classifier, by cosine similarity; 0 for none.
        l2: weight of ‖W‖²/2 (default: chosen on held-out training images).
        seed: seed of the patches that are drawn.
        pictures: test images to draw.
    """

    patches: int = ranged(100_000, least=100)
    neighbors: int = ranged(20, least=0)
    l2: float | None = ranged(None, above=0)
    seed: int = ranged(0, least=0)
    pictures: int = ranged(8, least=0)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.neighbors > self.patches:
            raise UserError(f"neighbors={self.neighbors} is more than patches={self.patches}. Use at most as many.")


@dataclass(frozen=True)
class DepthMeasuring:
    """How depth maps are read.

    Args:
        scale: numbers in PNG files for one meter.
        max_depth: pixels farther than this are ignored, in meters (default: none).
        pictures: test images to draw.
    """

    scale: float = ranged(1000.0, above=0)
    max_depth: float | None = ranged(None, above=0)
    pictures: int = ranged(8, least=0)

    def __post_init__(self) -> None:
        check_ranges(self)
