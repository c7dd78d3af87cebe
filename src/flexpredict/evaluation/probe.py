"""`flexpredict probe`, `transfer` and `evaluate clevr`: linear probes and k-NN on frozen features."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flexpredict.data.arguments import ImagesLike
from flexpredict.errors import UserError
from flexpredict.evaluation.results import Result, ResultPlaces, Results
from flexpredict.features.arguments import FrozenFeatures
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.probing import Probing
from flexpredict.settings.ranges import ranged


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(FrozenFeatures, Probing, ResultPlaces):
    """Options of all probes."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings(ProbeOptions):
    """Settings of `probe`.

    Args:
        train: labeled images to train on.
        test: labeled images of the same classes to test on.
    """

    train: ImagesLike = field(kw_only=False)
    test: ImagesLike = field(kw_only=False)


@takes_fields_of(ProbeSettings)
def probe(asked: ProbeSettings) -> Result:
    """Train a linear classifier on frozen features, and classify by nearest neighbors.

    By default with 1 %, 10 % and all of the labels. Regularization is chosen on held-out training images, never on
    test images. Features are cached, so another protocol with the same encoder takes seconds.
    """
    from flexpredict.evaluation.probing import run_probe

    space = asked.open_workspace()
    sources = space.open_source(asked.train), space.open_source(asked.test)
    result = run_probe(space.encoder, *sources, asked, asked, fabric=space.fabric, console=space.console)
    asked.save(result, space.fabric)
    return result


@dataclass(frozen=True, kw_only=True)
class TransferSettings(ProbeOptions):
    """Settings of `transfer`.

    Args:
        datasets: each DATA, NAME=DATA or NAME=TRAIN::TEST; DATA is a folder with train and test (or val) below,
            parquet files with such splits, hf://NAME, or scenes.
        labels: shares of the training labels (default: 1).
    """

    datasets: list[str] = field(kw_only=False)


@takes_fields_of(TransferSettings)
def transfer(asked: TransferSettings) -> Results:
    """The linear probe on several data sets, in one table (paper, Table 4).

    For example on CIFAR-100, Places205 and iNaturalist 2018, or on any other labeled images.
    """
    from flexpredict.evaluation.labeled_images import open_splits
    from flexpredict.evaluation.probing import ProbeTask, run_probes

    space = asked.open_workspace()
    tasks = [ProbeTask("transfer", *open_splits(dataset)) for dataset in asked.datasets]
    names = [task.data for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"Two data sets are called '{twice}'. Tell them apart with NAME=DATA.")
    return run_probes(space, tasks, asked, "Transfer: accuracy on the test images, frozen encoder (%)")


@dataclass(frozen=True, kw_only=True)
class ClevrSettings(ProbeOptions):
    """Settings of `evaluate_clevr`.

    Args:
        data: the folder CLEVR_v1.0, or scenes, or scenes:3000,size=64.
        tasks: count, dist, or both (default: both).
        labels: shares of the training labels (default: 1).
    """

    data: str | Path = field(kw_only=False)
    tasks: list[Literal["count", "dist"]] | None = None
    neighbors: int = ranged(0, least=0)


@takes_fields_of(ClevrSettings)
def evaluate_clevr(asked: ClevrSettings) -> Results:
    """Linear probes on CLEVR: the number of objects, and the distance of the nearest in six bins.

    The tasks are VTAB's. Probes are trained on the train split and tested on val, as test has no public scenes.
    """
    from flexpredict.evaluation.clevr_images import TASKS, clevr_sources
    from flexpredict.evaluation.probing import ProbeTask, run_probes

    space = asked.open_workspace()
    names = asked.tasks or TASKS
    train, test = (clevr_sources(str(asked.data), split, names) for split in ("train", "test"))
    tasks = [
        ProbeTask(f"clevr {name}", to_test.name, to_train, to_test)
        for name, to_train, to_test in zip(names, train, test, strict=True)
    ]
    return run_probes(space, tasks, asked, "CLEVR: accuracy on the test images, frozen encoder (%)")
