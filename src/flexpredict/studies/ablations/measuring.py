"""What each run came to: linear probes with few and with all labels, and the norms of A and m̃ from its log."""

import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.frozen import open_encoder
from flexpredict.errors import UserError
from flexpredict.evaluation.probing import run_probe
from flexpredict.evaluation.result_files import write_result
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.probing import Probing
from flexpredict.studies.ablations.runs import ArmRun

NORMS = {"A_norm": "‖A‖", "mask_token_norm": "‖m̃‖"}


@dataclass(frozen=True)
class Data:
    """Labelled images to fit and to test on, and the shares of labels to fit with."""

    train: ImageSource
    test: ImageSource | None = None  # not needed for norms
    labels: tuple[float, ...] = (0.01, 1.0)
    subsets: int = 5


def accuracies(run: ArmRun, data: Data) -> dict[str, float]:
    """Of the linear probes, in per cent. Kept beside the run, and computed again only for other weights or data."""
    assert data.test is not None
    kept = run.folder / "probe.json"
    encoder = open_encoder(run.folder)
    wanted = {
        "fingerprint": encoder.fingerprint(),
        "train": data.train.name,
        "test": data.test.name,
        "labels": list(data.labels),
        "subsets_of_labels": data.subsets,
    }
    if kept.is_file():
        saved = json.loads(kept.read_text(encoding="utf-8"))
        if _asked(saved["protocol"]) == wanted:
            numbers: dict[str, float] = saved["numbers"]
            return numbers
    probing = Probing(labels=data.labels, subsets=data.subsets, neighbors=0)
    result = run_probe(encoder, data.train, data.test, Extraction(), probing, console=Console(quiet=True))
    write_result(result, kept)
    return result.numbers


def norms(run: ArmRun) -> dict[str, float]:
    """The last ones in the log."""
    lines = RunFolder(run.folder).metrics.read_text(encoding="utf-8").splitlines()
    for line in reversed(lines):
        record = json.loads(line)
        if all(name in record for name in NORMS):
            return {shown: float(record[name]) for name, shown in NORMS.items()}
    raise UserError(
        f"{RunFolder(run.folder).metrics} tells no norms: the run logged nothing. Delete it and run again."
    )


def _asked(protocol: dict[str, Any]) -> dict[str, Any]:
    return {
        "fingerprint": protocol["fingerprint"],
        "train": protocol["train"]["data"],
        "test": protocol["test"]["data"],
        "labels": protocol["labels"],
        "subsets_of_labels": protocol["subsets_of_labels"],
    }
