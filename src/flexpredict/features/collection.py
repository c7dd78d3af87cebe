"""All parts of an embedding as if they were one: known as a whole, read part by part."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexpredict.data.decoding import UnreadableImage
from flexpredict.features.parts import StoredPart
from flexpredict.features.rows import Row
from flexpredict.files import write_atomically


@dataclass(frozen=True)
class Collection:
    """What is written into the final file.

    Args:
        parts: in order.
        row: what there is of an image.
        classes: names of the labels.
        problems: what could not even be listed.
        facts: encoder, settings and data, for whoever opens the file.
        advance: told of each part that was gone through.
    """

    parts: list[StoredPart] = field(repr=False)
    row: Row
    classes: tuple[str, ...] | None = field(repr=False)
    problems: list[UnreadableImage] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)
    advance: Callable[[int], None] = field(default=lambda count: None, repr=False)

    def rows(self) -> int:
        return sum(int(part.facts["rows"]) for part in self.parts)

    def has_labels(self) -> bool:
        return any(part.facts["labelled"] for part in self.parts)

    def count_skipped(self) -> int:
        return len(self.problems) + sum(int(part.facts["skipped"]) for part in self.parts)

    def skipped(self) -> Iterator[UnreadableImage]:
        yield from self.problems
        for part in self.parts:
            yield from part.skipped()

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each tensor, those with the largest numbers first."""
        rows, row = self.rows(), self.row
        shapes: dict[str, tuple[tuple[int, ...], str]] = {"indices": ((rows,), "int64")}
        if self.has_labels():
            shapes["labels"] = ((rows,), "int64")
        shapes["features"] = ((rows, row.dim), "float32")
        if row.patch_type is not None:
            shapes["patches"] = ((rows, row.patches, row.patch_dim), row.patch_type)
        return shapes

    def described(self) -> str:
        """The facts as JSON. Names of classes come with the numbers that stand for them."""
        classes = {"classes": self.classes} if self.has_labels() and self.classes else {}
        return json.dumps(self.facts | {"images": self.rows(), "skipped": self.count_skipped()} | classes)

    def each(self) -> Iterator[StoredPart]:
        """Part after part, and progress of it."""
        for part in self.parts:
            yield part
            self.advance(1)


def write_names(path: Path, collection: Collection) -> None:
    """A name a line; as a JSON string where it could not be told from the next, or begins like one."""
    write_lines(path, (name for part in collection.each() for name in part.names()))


def write_lines(path: Path, lines: Iterator[str]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for line in lines:
                plain = line.isprintable() and not line.startswith('"')
                file.write((line if plain else json.dumps(line)) + "\n")

    write_atomically(path, write)
