"""Which labels a probe uses, and how."""

from dataclasses import dataclass
from pathlib import Path

from flexpredict.settings.ranges import check_ranges, ranged


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

    labels: tuple[float, ...] | None = ranged(None, above=0, most=1)
    subsets: int = ranged(5, least=1)
    label_lists: tuple[Path, ...] = ()
    neighbors: int = ranged(20, least=0)
    l2: float | None = ranged(None, above=0)
    seed: int = ranged(0, least=0)

    def __post_init__(self) -> None:
        check_ranges(self)
