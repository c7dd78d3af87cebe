"""What each run came to: probes, k-NN, what features tell of the place, and the norms of A and m̃ from its log."""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.scenes.scenes import (
    IMAGE_OPTIONS,
    SceneOptions,
    counts_and_distances,
    nearest_bins,
    read_options,
)
from flexpredict.data.sources.image_source import ArraySource, ImageSource
from flexpredict.data.sources.streams import identity
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError
from flexpredict.evaluation.location.evaluation import measure_location
from flexpredict.evaluation.probing import run_probe
from flexpredict.evaluation.results import write_result
from flexpredict.features.workspace import Workspace
from flexpredict.files import write_text_atomically
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.probing import Probing

NORMS = {"A_norm": "‖A‖", "mask_token_norm": "‖m̃‖"}
LOCATION = {
    "location share": "location share",
    "place R²": "place R²",
    "accuracy lost, 1/2 patch": "lost, 1/2 patch",
    "accuracy lost, 1 patch": "lost, 1 patch",
}
TASKS = ("count", "distance")
_KEPT = "measured.json"


@dataclass(frozen=True)
class Measuring:
    """What is measured of every run.

    Args:
        labels: shares of the labels of the linear probes.
        subsets: how many times each share below 1 is drawn.
        neighbors: k of k-NN.
        images: at most so many to measure location with.
        scene_tasks: linear probes for the number of objects and the distance of the nearest, too.
    """

    labels: tuple[float, ...] = (0.01, 1.0)
    subsets: int = 5
    neighbors: int = 20
    images: int = 2000
    scene_tasks: bool = False

    def probing(self) -> Probing:
        return Probing(labels=list(self.labels), subsets=self.subsets, neighbors=self.neighbors)

    def described(self, train: ImageSource, test: ImageSource) -> dict[str, Any]:
        """All that numbers depend on besides the encoder, as JSON has it."""
        data = {
            role: {"data": source.name, **identity(source)} for role, source in (("train", train), ("test", test))
        }
        described: dict[str, Any] = json.loads(json.dumps({**dataclasses.asdict(self), **data}))
        return described


def measure(folder: Path, train: ImageSource, test: ImageSource, how: Measuring, fabric: Fabric) -> None:
    """Measure a finished run, and keep the numbers beside it."""
    encoder = open_encoder(folder)
    numbers: dict[str, float] = {}
    quiet = Console(quiet=True)
    with _features_beside(folder):
        probed = run_probe(encoder, train, test, Extraction(), how.probing(), fabric=fabric, console=quiet)
        write_result(probed, folder / "probe.json")
        numbers |= probed.numbers
        if how.scene_tasks:
            numbers |= {task: _scene_task(encoder, train, test, task, fabric) for task in TASKS}
        space = Workspace(encoder, fabric, quiet)
        located = measure_location(space, train, test, Extraction(), shifts=1, images=how.images)
        write_result(located, folder / "location.json")
    numbers |= {shown: located.numbers[name] for name, shown in LOCATION.items() if name in located.numbers}
    kept = {"encoder": _digest(folder), "asked": how.described(train, test), "numbers": numbers}
    write_text_atomically(folder / _KEPT, json.dumps(kept, indent=2) + "\n")


def measured(folder: Path, asked: dict[str, Any]) -> dict[str, float] | None:
    """What `measure` kept; None where it was asked something else, or of other weights. asked: as described."""
    if not (folder / _KEPT).is_file():
        return None
    kept = json.loads((folder / _KEPT).read_text(encoding="utf-8"))
    if kept["asked"] != asked or kept["encoder"] != _digest(folder):
        return None
    numbers: dict[str, float] = kept["numbers"]
    return numbers


def norms(folder: Path) -> dict[str, float]:
    """The last ones in the log."""
    path = RunFolder(folder).metrics
    for record in reversed(read_records(path)):
        if all(name in record for name in NORMS):
            return {shown: float(record[name]) for name, shown in NORMS.items()}
    raise UserError(f"{path} tells no norms: the run logged nothing. Delete {folder} and run again.")


def _scene_task(encoder: ImageEncoder, train: ImageSource, test: ImageSource, task: str, fabric: Fabric) -> float:
    """Accuracy of a linear probe. The images are those of the classes, so their features are there already."""
    sources = (_labeled(train, task), _labeled(test, task))
    once = Probing(labels=[1.0], neighbors=0)
    return run_probe(encoder, *sources, Extraction(), once, fabric=fabric).numbers["linear, 100 % labels"]


def _labeled(scenes: ImageSource, task: str) -> ArraySource:
    """The same scenes, labeled with the answers of a task."""
    assert isinstance(scenes, ArraySource)
    asked = read_options(scenes.name, SceneOptions(count=len(scenes)), IMAGE_OPTIONS)
    indices = asked.first + np.arange(asked.count)
    counts, nearest = counts_and_distances(indices, size=asked.size, seed=asked.seed, split=asked.split)
    labels = counts - 1 if task == "count" else nearest_bins(nearest)
    classes = tuple(f"{task} {number}" for number in range(int(labels.max()) + 1))
    return ArraySource(scenes.name, scenes.images, classes, torch.from_numpy(labels))


@contextmanager
def _features_beside(folder: Path) -> Iterator[None]:
    """Keep features of the images in the run folder until all is measured: hundreds of runs would fill the cache."""
    before, own = os.environ.get("FLEXPREDICT_CACHE"), folder / ".features"
    os.environ["FLEXPREDICT_CACHE"] = str(own)
    try:
        yield
    finally:
        if before is None:
            del os.environ["FLEXPREDICT_CACHE"]
        else:
            os.environ["FLEXPREDICT_CACHE"] = before
    shutil.rmtree(own, ignore_errors=True)


def _digest(folder: Path) -> str:
    """Of the weights, as a file."""
    return blake2b(RunFolder(folder).encoder.read_bytes(), digest_size=16).hexdigest()
