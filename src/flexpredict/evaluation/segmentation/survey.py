"""Looks through all masks before any work: which classes there are, and what cannot be used."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.dense.encoded_sizes import EncodedSize
from flexpredict.evaluation.dense.mapped_images import Role
from flexpredict.evaluation.segmentation.labels import Classes, MaskLabels
from flexpredict.evaluation.segmentation.layouts import MaskedImages
from flexpredict.sizes import Size

_IN_WORDS: dict[Role, str] = {"train": "training", "test": "test"}


@dataclass(frozen=True, eq=False)
class MaskSurvey:
    """What the masks of one set of images hold."""

    images: MaskedImages
    role: Role
    counts: NDArray[np.int64]  # N 256: pixels of each number in each mask
    sizes: list[Size]  # N, of the images

    def pixels(self) -> NDArray[np.int64]:
        """Of each number, in all masks: 256."""
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
    """The classes of the training masks or those that are named; refuses masks with other numbers."""
    found = train.found(labels.void)
    names = labels.names if labels.names is not None else {number: f"class {number}" for number in found}
    for survey in (train, test):
        unknown = [number for number in survey.found(labels.void) if number not in names]
        if unknown and not labels.others_are_void:
            _refuse_number(survey, unknown, labels)
    classes = Classes(tuple(names.values()), tuple(names))
    for survey in (train, test):
        if len(survey.without_labels(classes)) == len(survey.images):
            raise UserError(
                f"No {_IN_WORDS[survey.role]} image of {survey.images.name} has a label: all pixels of its masks are "
                f"void. Check the masks, and the numbers that void and classes name."
            )
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
    """What may make numbers smaller than the encoder deserves."""
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
    """Of the classes that each image shows, the share that covers less than a patch there."""
    areas = survey.counts[:, list(classes.numbers)].astype(np.float64)  # N C
    pixels = np.array([height * width for height, width in survey.sizes])
    encoded = [size.of(one) for one in survey.sizes]
    patches = np.array([height * width for height, width in encoded]) / np.prod(encoder.patch_size)
    covered = areas / pixels[:, None] * patches[:, None]
    shown = covered > 0
    return float((covered[shown] < 1).mean()) if shown.any() else 0.0


def _refuse_number(survey: MaskSurvey, unknown: list[int], labels: MaskLabels) -> None:
    number = unknown[0]
    index = int(np.flatnonzero(survey.counts[:, number])[0])
    classes = "no class of the training masks" if labels.names is None else f"none of the {len(labels.names)} classes"
    others = f" (nor are {some_of(unknown[1:])})" if len(unknown) > 1 else ""
    raise UserError(
        f"{survey.images.describe_map(index)} has pixels of number {number}, which is {classes}{others}. Name all "
        f"classes in a file with classes=FILE, or ignore such pixels with void={number}."
    )
