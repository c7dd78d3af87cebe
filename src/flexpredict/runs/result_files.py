"""Results of evaluations, read back from their JSON files. Files that hold anything else are skipped."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

_MOST_FILES = 200
_LARGEST = 4_000_000  # bytes: other JSON of a run may be long


def read_result(file: Path) -> dict[str, Any] | None:
    """A result with its task, data, numbers and protocol; None if the file is something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    kinds = {"task": str, "numbers": dict, "protocol": dict}
    if not isinstance(content, dict) or not all(isinstance(content.get(key), kind) for key, kind in kinds.items()):
        return None
    return content if all(isinstance(value, int | float) for value in content["numbers"].values()) else None


def unusual_settings(protocol: Mapping[str, Any]) -> list[str]:
    """Words that set results apart from others on the same data, for titles, columns, files and model cards."""
    overlap = "TESTED ON TRAINING IMAGES" if protocol.get("overlap") else ""
    seen = "TEST IMAGES SEEN IN PRE-TRAINING" if protocol.get("seen_in_pretraining") else ""
    return [words for words in (protocol.get("settings"), overlap, seen) if words]


def measured_in_words(task: str, data: str, protocol: Mapping[str, Any]) -> str:
    """Task, data and protocol in words that set the results apart from those of other protocols."""
    words = [task, data, *map(str, unusual_settings(protocol))]
    train = protocol.get("train")
    trained_on = train.get("data") if isinstance(train, Mapping) else None
    return ", ".join(words if trained_on in (None, data) else [*words, f"trained on {trained_on}"])


def results_of(run: Path) -> dict[str, float]:
    """All numbers of evaluations in a run folder and in the folders inside it, by what was measured.

    If the same was measured several times, the newest counts.
    """
    files = {path: path.stat() for path in (*run.glob("*.json"), *run.glob("*/*.json")) if not path.is_symlink()}
    newest = sorted(files, key=lambda path: (files[path].st_mtime, path), reverse=True)
    some = islice((path for path in newest if files[path].st_size < _LARGEST), _MOST_FILES)
    results = [result for result in map(read_result, some) if result is not None]
    found: dict[str, dict[str, float]] = {}
    for result in sorted(results, key=lambda result: str(result.get("date", ""))):
        found.setdefault(_title(result), {}).update(result["numbers"])
    return {
        f"{title}: {name}": round(float(value), 2)
        for title, numbers in sorted(found.items())
        for name, value in numbers.items()
    }


def _title(result: Mapping[str, Any]) -> str:
    """What was measured, with which of the run's encoders, and whether that was unfinished."""
    protocol = result["protocol"]
    context = ["context encoder"] if str(result.get("encoder", "")).startswith("context ") else []
    unfinished = ["unfinished encoder"] if protocol.get("unfinished") else []
    return ", ".join(
        [measured_in_words(result["task"], str(result.get("data", "")), protocol), *context, *unfinished]
    )
