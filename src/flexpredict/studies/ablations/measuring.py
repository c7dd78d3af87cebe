"""Measures the encoder of a run with probes, k-NN and location; reads the norms of A and m̃ from its log."""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.scenes.scenes import CLASSES, IMAGE_OPTIONS, SceneOptions, read_options, scene_answers
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.image_source import ArraySource, ImageSource
from flexpredict.data.sources.streams import identity
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.location.evaluation import measure_location
from flexpredict.evaluation.probing import run_probe
from flexpredict.evaluation.results import write_result
from flexpredict.features.workspace import Workspace
from flexpredict.files import write_json_atomically
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.probing import Probing
from flexpredict.studies.ablations.downstream import Downstream

NORMS = {"A_norm": "‖A‖", "mask_token_norm": "‖m̃‖"}
LOCATION = {
    "location share": "location share",
    "place R²": "place R²",
    "accuracy lost, 1/2 patch": "lost, 1/2 patch",
    "accuracy lost, 1 patch": "lost, 1 patch",
}
TASKS = ("count", "distance", "localization")  # whose answers the built-in scenes know
_KEPT = "measured.json"


@dataclass(frozen=True)
class Measuring:
    """How every run is measured."""

    labels: tuple[float, ...] = (0.01, 1.0)  # shares of the labels, for linear probes
    subsets: int = 5  # draws of each share below 1
    neighbors: int = 20  # k of k-NN
    images: int = 2000  # at most, for measuring location
    downstream: Downstream = field(default_factory=Downstream)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Measuring":
        """From plain values."""
        downstream = Downstream.of(**values["downstream"])
        return cls(**{**values, "labels": tuple(values["labels"]), "downstream": downstream})

    def probing(self) -> Probing:
        return Probing(labels=list(self.labels), subsets=self.subsets, neighbors=self.neighbors)

    def described(self, train: ImageSource, test: ImageSource) -> dict[str, Any]:
        """All that the numbers depend on besides the encoder, as read back from JSON."""
        data = {
            role: {"data": source.name, **identity(source)} for role, source in (("train", train), ("test", test))
        }
        tasks = TASKS if _are_scenes(train) and _are_scenes(test) else ()
        asked = {**dataclasses.asdict(self), **data, "scene_tasks": tasks}
        del asked["downstream"]
        if self.downstream.described:
            asked["downstream"] = self.downstream.described
        described: dict[str, Any] = json.loads(json.dumps(asked))
        return described


def measure(
    encoder: ImageEncoder, folder: Path, train: ImageSource, test: ImageSource, how: Measuring, fabric: Fabric
) -> dict[str, float]:
    """Measure the encoder of a run, unless already done, and save the numbers in its folder."""
    asked, quiet = how.described(train, test), Console(quiet=True)
    if (known := measured(folder, asked)) is not None:
        return known
    encoder.pretrained_on = ()  # `Downstream.check` looks for images seen in pre-training, once for all runs
    with _features_beside(folder) as beside:
        probed = run_probe(encoder, train, test, Extraction(), how.probing(), fabric=fabric, console=quiet)
        write_result(probed, folder / "probe.json")
        numbers = dict(probed.numbers)
        if asked["scene_tasks"]:
            # The images are the same, so their features are cached already.
            all_labels = Probing(labels=[1.0], neighbors=0)
            for task, to_train, to_test in zip(TASKS, _labeled(train), _labeled(test), strict=True):
                probed = run_probe(encoder, to_train, to_test, Extraction(), all_labels, fabric=fabric)
                numbers[task] = probed.numbers["linear, 100 % labels"]
        found = measure_location(
            Workspace(encoder, fabric, quiet), train, test, Extraction(), shifts=1, images=how.images
        )
        write_result(found, folder / "location.json")
        numbers |= {shown: found.numbers[name] for name, shown in LOCATION.items() if name in found.numbers}
        numbers |= how.downstream.measure(encoder, beside / "davis", fabric)
    kept = {"encoder": _digest(folder), "asked": asked, "numbers": numbers}
    write_json_atomically(folder / _KEPT, kept)
    return numbers


def measured(folder: Path, asked: dict[str, Any]) -> dict[str, float] | None:
    """The numbers that `measure` saved; None if the settings or the weights have changed."""
    path = folder / _KEPT
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if kept.get("asked") != asked or kept["encoder"] != _digest(folder):
        return None
    return dict(kept["numbers"])


def norms(folder: Path) -> dict[str, float]:
    """The last norms of A and m̃ in the log."""
    path = RunFolder(folder).metrics
    for record in reversed(read_records(path)):
        if all(name in record for name in NORMS):
            return {shown: float(record[name]) for name, shown in NORMS.items()}
    raise UserError(f"{path} has no norms: the run logged nothing. Delete {folder} and run again.")


def undrawn_scenes(name: str) -> ArraySource:
    """A stand-in with the number, size and classes of these scenes, for plans: drawing scenes takes seconds."""
    asked = read_options(name, SceneOptions(count=1), IMAGE_OPTIONS)
    blank = torch.zeros(1, asked.size, asked.size, 3, dtype=torch.uint8).expand(asked.count, -1, -1, -1)
    return ArraySource(name, blank, CLASSES, torch.arange(asked.count) % len(CLASSES))


def _are_scenes(source: ImageSource) -> bool:
    source = source.source if isinstance(source, SubsetSource) else source
    return isinstance(source, ArraySource) and source.name.partition(":")[0] == "scenes"


def _labeled(scenes: ImageSource) -> list[ImageSource]:
    """The same scenes, labeled with the answers of each task."""
    if isinstance(scenes, SubsetSource):
        return [SubsetSource(labeled, scenes.indices) for labeled in _labeled(scenes.source)]
    assert isinstance(scenes, ArraySource)
    asked = read_options(scenes.name, SceneOptions(count=len(scenes)), IMAGE_OPTIONS)
    indices = asked.first + np.arange(asked.count)
    answers = scene_answers(indices, size=asked.size, seed=asked.seed, split=asked.split)
    sources: list[ImageSource] = []
    for task in TASKS:
        classes = tuple(f"{task} {number}" for number in range(int(answers[task].max()) + 1))
        sources.append(ArraySource(scenes.name, scenes.images, classes, torch.from_numpy(answers[task])))
    return sources


@contextmanager
def _features_beside(folder: Path) -> Iterator[Path]:
    """Cache features in the run folder and delete them at the end: those of hundreds of runs would fill the disk."""
    before, own = os.environ.get("FLEXPREDICT_CACHE"), folder / ".features"
    os.environ["FLEXPREDICT_CACHE"] = str(own)
    try:
        yield own
    finally:
        if before is None:
            del os.environ["FLEXPREDICT_CACHE"]
        else:
            os.environ["FLEXPREDICT_CACHE"] = before
    shutil.rmtree(own, ignore_errors=True)


def _digest(folder: Path) -> str:
    """A digest of the file of weights; empty if the encoder is not trained."""
    weights = RunFolder(folder).encoder
    return blake2b(weights.read_bytes(), digest_size=16).hexdigest() if weights.is_file() else ""
