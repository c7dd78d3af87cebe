"""What the numbers in masks stand for: classes, or pixels that are ignored (void)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flexpredict.errors import UserError
from flexpredict.evaluation.index_masks import VOID

_NUMBERED = re.compile(r"(\d+)[\s,:;]+(\S.*)")


@dataclass(frozen=True)
class MaskLabels:
    """What the numbers in masks stand for.

    Args:
        names: the class of each number; None for as many classes as there are numbers in the training masks.
        void: numbers of pixels that are ignored.
        others_are_void: all other numbers are ignored, too; otherwise they are refused.
    """

    names: Mapping[int, str] | None = None
    void: frozenset[int] = frozenset({VOID})
    others_are_void: bool = False

    def changed(self, classes: str | Path | None, void: Sequence[int] | None) -> "MaskLabels":
        """With the classes of a file, and with other numbers ignored, where these are given."""
        labels = self
        if classes is not None:
            labels = replace(labels, names=read_classes(Path(classes)), others_are_void=False)
        if void is not None:
            outside = [number for number in void if not 0 <= number <= VOID]
            if outside:
                raise UserError(f"void={outside[0]} is out of range: numbers in masks are from 0 to {VOID}.")
            labels = replace(labels, void=frozenset(void))
        if labels.names is not None:
            kept = {number: name for number, name in labels.names.items() if number not in labels.void}
            labels = replace(labels, names=kept)
        return labels


@dataclass(frozen=True)
class Classes:
    """The classes that are told apart, numbered without gaps."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]  # of each class, in masks

    def __len__(self) -> int:
        return len(self.names)

    def of_mask(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """H W, numbers as they are stored -> H W, indices of classes; VOID for pixels that are ignored."""
        table = np.full(256, VOID, np.uint8)
        table[list(self.numbers)] = np.arange(len(self.numbers))
        classes: NDArray[np.uint8] = table[mask]
        return classes


def read_classes(path: Path) -> dict[int, str]:
    """A name on each line, in the order of the numbers from 0; or each line its number and its name."""
    try:
        lines = [line.strip() for line in path.expanduser().read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"classes={path} cannot be read: {error}. Give a text file with a class on each line."
        ) from error
    lines = [line for line in lines if line and not line.startswith("#")]
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    names = dict(enumerate(lines))
    if lines and all(numbered):
        pairs = [(int(found.group(1)), found.group(2)) for found in numbered if found]
        names = dict(pairs)
        if len(names) < len(pairs):
            repeated = next(number for number, _ in pairs if [other for other, _ in pairs].count(number) > 1)
            raise UserError(f"classes={path} names number {repeated} twice. Give each number once.")
    if len(names) < 2 or max(names) >= 256:
        what = f"{len(names)} class(es)" if len(names) < 2 else f"the number {max(names)}"
        raise UserError(f"classes={path} has {what}. Name at least 2 classes, with numbers from 0 to 255.")
    return names
