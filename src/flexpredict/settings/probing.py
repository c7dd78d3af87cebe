"""Which labels a probe uses, and how."""

from dataclasses import dataclass
from pathlib import Path

from flexpredict.settings.ranges import Checked, ranged


@dataclass(frozen=True, kw_only=True)
class Probing(Checked):
    """Which labels a probe uses, and how.

    Args:
        labels: shares of the training labels, each class in proportion (default: 0.01 0.1 1, without those that are
            too small for one image of each class).
        subsets: random subsets for each share below 1; results are their means, with 95 % intervals.
        label_list: text files that name the images of a subset, one per line, such as the published 1 % lists.
        neighbors: k of k-NN, by cosine similarity, weighted as in DINO's protocol; 0 for none.
        l2: regularization, the weight of ‖W‖²/2 (default: chosen on held-out training images).
        seed: seed of the subsets and of the images held out.
    """

    labels: list[float] | None = ranged(None, above=0, most=1)
    subsets: int = ranged(5, least=1)
    label_list: list[Path] | None = None
    neighbors: int = ranged(20, least=0)
    l2: float | None = ranged(None, above=0)
    seed: int = ranged(0, least=0)
