"""Which numbers belong on an encoder's model card: those that were measured on its very weights."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError
from flexpredict.evaluation.results import unusual_settings


@dataclass(frozen=True)
class Measured:
    """Results of this encoder, and the number of those that had its name but other weights."""

    results: tuple[dict[str, Any], ...] = ()
    of_other_weights: int = 0


def collect_results(name: str, fingerprint: str, place: Path | None) -> Measured:
    """Results in JSON files that evaluations wrote: one file, or all in a folder and below it.

    name: by which the encoder was opened; fingerprint: of its weights.
    """
    if place is None:
        return Measured()
    if not place.exists():
        raise UserError(
            f"results={place} does not exist. Name the folder that the evaluations wrote to, or leave it out."
        )
    found: list[dict[str, Any]] = []
    others = 0
    for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
        result = _read(file)
        if result is None:
            if file == place:
                raise UserError(f"results={file} is not a result of an evaluation. Name one, or a folder of them.")
            continue
        # A name is not enough: training may have gone on since, and the context encoder has the same one.
        measured_on = result["protocol"].get("fingerprint")
        same_name = result["protocol"].get("encoder") == name
        if measured_on == fingerprint or (same_name and measured_on is None):
            found.append(result)
        elif same_name:
            others += 1
    return Measured(tuple(found), others)


def results_table(measured: Measured) -> str:
    """The results as a Markdown table."""
    if not measured.results:
        return "No results were given."
    rows = [
        (result["task"], str(result.get("data", "")), _settings(result), name, f"{value:.2f}")
        for result in measured.results
        for name, value in result["numbers"].items()
    ]
    return table(("task", "data", "settings", "measure", "value"), rows)


def _settings(result: dict[str, Any]) -> str:
    return ", ".join(unusual_settings(result["protocol"])) or "as usual"


def _read(file: Path) -> dict[str, Any] | None:
    """A result, or None where the file is something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    kinds = {"task": str, "numbers": dict, "protocol": dict}
    if not isinstance(content, dict) or not all(isinstance(content.get(key), kind) for key, kind in kinds.items()):
        return None
    return content if all(isinstance(value, int | float) for value in content["numbers"].values()) else None


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns named "value" are aligned to the right."""
    rules = ["---:" if name == "value" else "---" for name in header]
    return "\n".join([_row(header), f"|{'|'.join(rules)}|", *map(_row, rows)])


def code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _row(cells: Sequence[str]) -> str:
    escaped = [" ".join(cell.replace("|", "\\|").split()) for cell in cells]
    return f"| {' | '.join(escaped)} |"
