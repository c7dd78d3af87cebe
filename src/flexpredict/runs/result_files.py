"""Results of evaluations, read back from the JSON that they wrote. Whatever else a file holds is passed over."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

_MOST_FILES = 200
_LARGEST = 4_000_000  # bytes: other JSON of a run may be long


def read_result(file: Path) -> dict[str, Any] | None:
    """A result with its task, data, numbers and protocol; None where the file is something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    kinds = {"task": str, "numbers": dict, "protocol": dict}
    if not isinstance(content, dict) or not all(isinstance(content.get(key), kind) for key, kind in kinds.items()):
        return None
    return content if all(isinstance(value, int | float) for value in content["numbers"].values()) else None


def unusual_settings(protocol: Mapping[str, Any]) -> list[str]:
    """What sets numbers apart from others on the same data, in words: for titles, columns, files and model cards."""
    overlap = "TESTED ON TRAINING IMAGES" if protocol.get("overlap") else ""
    return [words for words in (protocol.get("settings"), overlap) if words]


def results_of(run: Path) -> dict[str, float]:
    """All numbers of evaluations in a run folder and in the folders inside it, by what was measured."""
    found: dict[str, float] = {}
    files = (path for path in sorted([*run.glob("*.json"), *run.glob("*/*.json")]) if not path.is_symlink())
    for file in islice((path for path in files if path.stat().st_size < _LARGEST), _MOST_FILES):
        if (result := read_result(file)) is not None:
            settings = map(str, unusual_settings(result["protocol"]))
            words = ", ".join([result["task"], str(result.get("data", "")), *settings])
            found |= {f"{words}: {name}": round(float(value), 2) for name, value in result["numbers"].items()}
    return found
