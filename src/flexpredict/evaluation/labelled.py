"""Training and test images whose labels mean the same."""

from dataclasses import dataclass

import torch
from torch import Tensor

from flexpredict.data.image_source import ImageSource
from flexpredict.errors import UserError


@dataclass
class LabelledPair:
    """Two sources, and labels of both in one numbering."""

    train: ImageSource
    test: ImageSource
    train_labels: Tensor  # int64, one an image; -1 where there is none
    test_labels: Tensor
    classes: tuple[str, ...]


def labelled_pair(train: ImageSource, test: ImageSource) -> LabelledPair:
    """Classes are matched by name, as two folders or tables may number them differently."""
    for source, which in ((train, "training"), (test, "test")):
        if source.labels is None or source.classes is None:
            raise UserError(
                f"The {which} images of {source.name} have no labels. Sort them into one folder a class, or name the "
                "column of the classes with ,label=COLUMN."
            )
    assert train.classes is not None and test.classes is not None
    assert train.labels is not None and test.labels is not None
    used = {test.classes[label] for label in torch.unique(test.labels).tolist() if label >= 0}
    known = {train.classes[label] for label in torch.unique(train.labels).tolist() if label >= 0}
    strange = sorted(used - known)
    if strange:
        shown = ", ".join(strange[:3])
        raise UserError(
            f"{len(strange)} of the {len(used)} classes of {test.name} have no image in {train.name}, for example "
            f"{shown}: nothing can be right about them. Are these the same data set, with the same names of classes?"
        )
    if len(known) < 2:
        raise UserError(f"All images of {train.name} are of one class; at least 2 are needed.")
    number_of = {name: number for number, name in enumerate(train.classes)}
    # The last entry is for images without a label, whose index is -1.
    renumbered = torch.tensor([*(number_of.get(name, -1) for name in test.classes), -1])
    return LabelledPair(train, test, train.labels, renumbered[test.labels], train.classes)
