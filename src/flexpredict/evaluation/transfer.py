"""`flexpredict transfer`: the probe over several data sets, one line each, in the shape of the paper's Table 4."""

import re
from collections.abc import Sequence
from pathlib import Path

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.frozen import FrozenEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.probe import Probing, checked, probe
from flexpredict.evaluation.results import Result
from flexpredict.features.extraction import Extraction

_TEST_NAMES = ("test", "val", "valid", "validation")


def transfer(
    encoder: FrozenEncoder,
    datasets: Sequence[str],
    how: Extraction | None = None,
    probing: Probing | None = None,
    *,
    fabric: Fabric | None = None,
    console: Console | None = None,
) -> list[Result]:
    """datasets: each NAME=DATA, NAME=TRAIN::TEST, or DATA alone, where DATA has a train and a test split."""
    probing = probing or Probing(labels=(1.0,))
    # All are opened and checked first: a mistake in the last is not found after a day with the others.
    opened = [open_splits(dataset) for dataset in datasets]
    for _, train, test in opened:
        checked(train, test, probing)
    names = [name for name, _, _ in opened]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"Two data sets are called '{twice}'. Tell them apart with NAME=DATA.")
    results = []
    for name, train, test in opened:
        result = probe(encoder, train, test, how, probing, fabric=fabric, console=console, task="transfer")
        result.data = name
        results.append(result)
    return results


def open_splits(dataset: str) -> tuple[str, ImageSource, ImageSource]:
    """The name, the training and the test images of a data set."""
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
    # Of DATA/train::DATA/test it is DATA that tells something.
    return (path.parent.name if colons and path.name == "train" else path.name) or dataset, dataset


def _first_that_opens(data: str, splits: Sequence[str]) -> ImageSource:
    problems = []
    for split in splits:
        try:
            return open_source(f"{data},split={split}")
        except UserError as error:
            problems.append(str(error))
    raise UserError(
        f"{data} has no {' or '.join(splits)} images that could be opened: {problems[0]} Or name both yourself, as "
        "NAME=TRAIN::TEST."
    )
