"""A labeled data set as training and test images: NAME=TRAIN::TEST, or a name that stands for both splits."""

import re
from collections.abc import Sequence
from pathlib import Path

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError

_TEST_NAMES = ("test", "val", "valid", "validation")


def open_splits(dataset: str) -> tuple[str, ImageSource, ImageSource]:
    """The name, the training images and the test images of NAME=DATA, NAME=TRAIN::TEST, or DATA alone.

    DATA is a folder with train and test (or val) below, scenes, or anything that has such splits.
    """
    name, data = _name_and_data(dataset)
    train, colons, test = data.partition("::")
    if colons:
        return name, open_source(train), open_source(test)
    if data.partition(":")[0] == "scenes":
        comma = "," if ":" in data else ":"
        return name, open_source(f"{data}{comma}split=train"), open_source(f"{data}{comma}split=test")
    folder = Path(data).expanduser()
    if (folder / "train").is_dir():
        tests = [folder / test for test in _TEST_NAMES if (folder / test).is_dir()]
        if not tests:
            raise UserError(
                f"{folder} has a folder train, but none of {', '.join(_TEST_NAMES)}. Name both: NAME=TRAIN::TEST."
            )
        return name, open_source(str(folder / "train")), open_source(str(tests[0]))
    return name, _first_that_opens(data, ("train",)), _first_that_opens(data, _TEST_NAMES)


def _name_and_data(dataset: str) -> tuple[str, str]:
    """NAME=DATA apart; without a name, the last part of the path of the (training) images, without options."""
    name, equals, data = dataset.partition("=")
    if equals and re.fullmatch(r"[\w. -]+", name) and not Path(dataset).exists():
        return name, data
    train, colons, _ = dataset.partition("::")
    path = Path(train.partition(",")[0])
    # DATA/train::DATA/test is called DATA.
    return (path.parent.name if colons and path.name == "train" else path.name) or dataset, dataset


def _first_that_opens(data: str, splits: Sequence[str]) -> ImageSource:
    problems = []
    for split in splits:
        try:
            return open_source(f"{data},split={split}")
        except UserError as error:
            problems.append(str(error))
    raise UserError(
        f"{data} has no {' or '.join(splits)} images that could be opened: {problems[0]} Or name both, as "
        "NAME=TRAIN::TEST."
    )
