"""How a linear head for every patch is fitted."""

from dataclasses import dataclass

from flexpredict.errors import UserError
from flexpredict.settings.ranges import check_ranges, ranged


@dataclass(frozen=True)
class DenseHead:
    """How a linear head for every patch is fitted, and how its neighbors vote.

    Args:
        patches: patches to fit on, drawn evenly from all training images.
        neighbors: k of the k-NN classifier, by cosine similarity; 0 for none.
        l2: weight of ‖W‖²/2 (default: chosen on held-out training images).
        seed: seed of the patches that are drawn.
    """

    patches: int = ranged(100_000, least=100)
    neighbors: int = ranged(20, least=0)
    l2: float | None = ranged(None, above=0)
    seed: int = ranged(0, least=0)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.neighbors > self.patches:
            raise UserError(f"neighbors={self.neighbors} is more than patches={self.patches}. Use at most as many.")
