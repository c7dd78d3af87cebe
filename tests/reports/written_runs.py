"""Folders of runs that were never trained: a recipe and the lines of a log."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from flexpredict.reports.sections import SECTIONS

CONFIG = {
    "data": "/photos",
    "model": "vit_small_patch16_224",
    "epochs": 10,
    "batch_size": 64,
    "positions": {"kind": "stochastic", "noise_std": 0.25},
    "optimizer": {"lr": 8e-4, "betas": [0.9, 0.95]},
}


def make_run(folder: Path, lines: Iterable[dict[str, Any]] = (), config: Any = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with (folder / "metrics.jsonl").open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return folder


def full_lines(count: int) -> list[dict[str, Any]]:
    """Every metric that the page knows."""
    keys = [metric.key for section in SECTIONS for metric in section.metrics]
    return [{"step": i, "epoch": i / 10, **dict.fromkeys(keys, 1 / i)} for i in range(1, count + 1)]
