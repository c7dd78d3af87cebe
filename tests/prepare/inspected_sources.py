"""Sources to inspect, and what is said of them."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import Record
from flexpredict.prepare.inspect import inspect
from flexpredict.prepare.survey import Survey
from flexpredict.showing import show


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def look(source: Any, out: Path, **options: Any) -> tuple[Survey, str]:
    """The survey, and what is shown of it in a pipe."""
    printed = io.StringIO()
    inspection = inspect(source, out, **{"workers": 0, **options})
    show(inspection, Console(file=printed))
    return inspection.survey, printed.getvalue()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass
class FakeStream:
    parts: list[list[Record | UnreadableImage]]
    classes: tuple[str, ...] | None = None
    length: int | None = None
    name: str = "pipe:fake"

    @property
    def pieces(self) -> int:
        return len(self.parts)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        yield from self.parts[piece]
