"""The classes that numbers in masks stand for, and a survey of all masks before any work."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.dense.images import MappedImages, Role
from flexpredict.evaluation.dense.patches import EncodedSize
from flexpredict.evaluation.index_masks import VOID
from flexpredict.sizes import Size

BACKGROUND = "background"
MaskedImages: TypeAlias = MappedImages[np.uint8]

_NUMBERED = re.compile(r"(\d+)[\s,:;]+(\S.*)")


@dataclass(frozen=True)
class MaskLabels:
    """The meaning of the numbers in masks."""

    names: Mapping[int, str] | None = None  # of classes; None for all numbers in the training masks
    void: frozenset[int] = frozenset({VOID})  # numbers of pixels that are ignored
    others_are_void: bool = False  # numbers without a name are ignored as well; otherwise they are refused

    def changed(self, classes: str | Path | None, void: Sequence[int] | None) -> "MaskLabels":
        """A copy with the classes of a file and with other ignored numbers, if given."""
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
    """The classes, numbered without gaps."""

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
    """Read a file with a name on each line, in the order of the numbers from 0; or a number and a name."""
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


_IN_WORDS: dict[Role, str] = {"train": "training", "test": "test"}


@dataclass(frozen=True, eq=False)
class MaskSurvey:
    """The numbers in the masks of one set of images."""

    images: MaskedImages
    role: Role
    counts: NDArray[np.int64]  # N 256: pixels of each number in each mask
    sizes: list[Size]  # N, of the images

    def pixels(self) -> NDArray[np.int64]:
        """Pixels of each number in all masks: 256."""
        total: NDArray[np.int64] = self.counts.sum(axis=0)
        return total

    def found(self, void: frozenset[int]) -> list[int]:
        """The numbers that occur, without void."""
        return [number for number in np.flatnonzero(self.pixels()).tolist() if number not in void]

    def without_labels(self, classes: Classes) -> list[str]:
        """Images of which every pixel is void."""
        empty = np.flatnonzero(self.counts[:, list(classes.numbers)].sum(axis=1) == 0)
        return [self.images.source.describe(index) for index in empty.tolist()]


def survey_masks(images: MaskedImages, role: Role, console: Console) -> MaskSurvey:
    counts, sizes = [], []
    for size, mask in images.checked_maps(console):
        counts.append(np.bincount(mask.ravel(), minlength=256))
        sizes.append(size)
    return MaskSurvey(images, role, np.stack(counts), sizes)


def settle_classes(train: MaskSurvey, test: MaskSurvey, labels: MaskLabels) -> Classes:
    """The named classes, or all numbers of the training masks; refuses masks with other numbers."""
    found = train.found(labels.void)
    if not found:
        _refuse_no_label(train)
    names = labels.names if labels.names is not None else {number: f"class {number}" for number in found}
    for survey in (train, test):
        unknown = [number for number in survey.found(labels.void) if number not in names]
        if unknown and not labels.others_are_void:
            _refuse_number(survey, unknown, labels)
    classes = Classes(tuple(names.values()), tuple(names))
    for survey in (train, test):
        if len(survey.without_labels(classes)) == len(survey.images):
            _refuse_no_label(survey)
    present = [number for number in found if number in names]
    if len(present) < 2:
        raise UserError(
            f"The training masks of {train.images.name} show only one class, {names[present[0]]}. At least 2 are "
            "needed."
        )
    return classes


def survey_warnings(
    train: MaskSurvey, test: MaskSurvey, classes: Classes, size: EncodedSize, encoder: ImageEncoder
) -> list[str]:
    """Warnings about data or settings that may make results worse than the encoder deserves."""
    warnings = []
    for survey in (train, test):
        if empty := survey.without_labels(classes):
            warnings.append(
                f"{len(empty)} of {len(survey.images)} {_IN_WORDS[survey.role]} images have no labeled pixel, so "
                f"they count for nothing: {some_of(empty)}."
            )
    trained, tested = train.pixels(), test.pixels()
    unseen = [
        name
        for name, number in zip(classes.names, classes.numbers, strict=True)
        if tested[number] > trained[number] == 0
    ]
    if unseen:
        warnings.append(f"{len(unseen)} classes of the test masks are not in the training masks: {some_of(unseen)}.")
    if (share := share_below_a_patch(test, classes, size, encoder)) > 0.5:
        warnings.append(
            f"{100 * share:.0f} % of what is labeled in the test images is smaller than one patch of {encoder.what}, "
            "so it can hardly be found. Use a larger image_size."
        )
    return warnings


def share_below_a_patch(survey: MaskSurvey, classes: Classes, size: EncodedSize, encoder: ImageEncoder) -> float:
    """The share of the classes shown in each image, except the background, that cover less than a patch in it.

    If no class is called background, the largest class of each image counts as background.
    """
    areas = survey.counts[:, list(classes.numbers)].astype(np.float64)  # N C
    named = np.array([name == BACKGROUND for name in classes.names])
    background = named if named.any() else areas == areas.max(axis=1, keepdims=True)
    areas = np.where(background, 0.0, areas)
    pixels = np.array([height * width for height, width in survey.sizes])
    encoded = [size.of(one) for one in survey.sizes]
    patches = np.array([height * width for height, width in encoded]) / np.prod(encoder.patch_size)
    covered = areas / pixels[:, None] * patches[:, None]
    shown = covered > 0
    return float((covered[shown] < 1).mean()) if shown.any() else 0.0


def _refuse_no_label(survey: MaskSurvey) -> NoReturn:
    raise UserError(
        f"No {_IN_WORDS[survey.role]} image of {survey.images.name} has a label: all pixels of its masks are void. "
        "Check the masks, and the numbers that void and classes name."
    )


def _refuse_number(survey: MaskSurvey, unknown: list[int], labels: MaskLabels) -> None:
    number = unknown[0]
    index = int(np.flatnonzero(survey.counts[:, number])[0])
    classes = "no class of the training masks" if labels.names is None else f"none of the {len(labels.names)} classes"
    others = f" (nor are {some_of(unknown[1:])})" if len(unknown) > 1 else ""
    raise UserError(
        f"{survey.images.describe_map(index)} has pixels of number {number}, which is {classes}{others}. Name all "
        f"classes in a file with classes=FILE, or ignore such pixels with void={number}."
    )
