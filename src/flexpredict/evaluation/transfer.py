"""`flexpredict transfer`: the probe over several data sets, one line each, in the shape of the paper's Table 4."""

import re
from collections.abc import Sequence
from pathlib import Path

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.image_source import ImageSource
from flexpredict.data.sources import open_source
from flexpredict.errors import UserError
from flexpredict.evaluation.encoders import FrozenEncoder
from flexpredict.evaluation.features import Extraction
from flexpredict.evaluation.probe import Probing, probe
from flexpredict.evaluation.results import Result

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
    # All are opened first: a mistake in the last is not found after a day with the others.
    opened = [open_splits(dataset) for dataset in datasets]
    results = []
    for name, train, test in opened:
        result = probe(encoder, train, test, how, probing, fabric=fabric, console=console, task="transfer")
        result.data = name
        results.append(result)
    return results


def open_splits(dataset: str) -> tuple[str, ImageSource, ImageSource]:
    """The name, the training and the test images of a data set."""
    name, equals, rest = dataset.partition("=")
    if not equals or not re.fullmatch(r"[\w. -]+", name) or "," in name:
        name, rest = Path(dataset.partition(",")[0]).name or dataset, dataset
    if "::" in rest:
        train, _, test = rest.partition("::")
        return name, open_source(train), open_source(test)
    if rest.startswith("scenes"):
        return name, open_source(rest), open_source(f"{rest}{',' if ':' in rest else ':'}split=test")
    folder = Path(rest).expanduser()
    if (folder / "train").is_dir():
        tests = [folder / test for test in _TEST_NAMES if (folder / test).is_dir()]
        if tests:
            return name, open_source(str(folder / "train")), open_source(str(tests[0]))
    return name, _first_that_opens(rest, ("train",)), _first_that_opens(rest, _TEST_NAMES)


def _first_that_opens(data: str, splits: Sequence[str]) -> ImageSource:
    problems = []
    for split in splits:
        try:
            return open_source(f"{data},split={split}")
        except UserError as error:
            problems.append(str(error))
    raise UserError(f"{data} has no split {' or '.join(splits)}: {problems[0]} Name both: {data}=TRAIN::TEST.")
