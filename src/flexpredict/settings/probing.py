"""Which labels a probe uses, and how."""

from dataclasses import dataclass
from pathlib import Path

from flexpredict.errors import UserError


@dataclass(frozen=True)
class Probing:
    """Which labels a probe uses, and how.

    Args:
        labels: shares of the training labels, for example (0.01, 0.1, 1.0); shares below 1 are drawn class by class
            (default: these three, without those too small for one image of each class).
        subsets: how often each share below 1 is drawn; numbers are means over the draws, with 95 % intervals.
        label_lists: text files with image names, one a line; each is a subset, such as the published 1 % lists.
        neighbors: k of the k-NN classifier, by cosine similarity, weighted as in DINO's protocol; 0 for none.
        l2: weight of ‖W‖²/2 (default: chosen on held-out training images).
        seed: seed of the subsets and of the images that are held out.
    """

    labels: tuple[float, ...] | None = None
    subsets: int = 5
    label_lists: tuple[Path, ...] = ()
    neighbors: int = 20
    l2: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for share in self.labels or ():
            if not 0 < share <= 1:
                raise UserError(f"labels={share} is not a share of the labels. Use 0.01 for 1 %, up to 1.")
        if self.subsets < 1:
            raise UserError(f"subsets={self.subsets} is too small. Use at least 1.")
        if self.neighbors < 0:
            raise UserError(f"neighbors={self.neighbors} is negative. Use 20, or 0 to leave k-NN out.")
        if self.l2 is not None and not self.l2 > 0:
            raise UserError(f"l2={self.l2:g} must be positive. Leave it out to have it chosen.")
