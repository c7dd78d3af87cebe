"""All parts of an embedding as if they were one: described as a whole, read part by part."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexpredict.data.decoding import UnreadableImage
from flexpredict.features.encoding import FeatureShape
from flexpredict.features.parts import StoredPart
from flexpredict.files import write_atomically


@dataclass(frozen=True)
class JoinedParts:
    """What is written into the final file.

    Args:
        parts: in order.
        shape: what there is for each image.
        classes: names of the labels.
        problems: what could not even be listed.
        facts: encoder, settings and data, for those who open the file.
        advance: called after each part that was read.
    """

    parts: list[StoredPart] = field(repr=False)
    shape: FeatureShape
    classes: tuple[str, ...] | None = field(repr=False)
    problems: list[UnreadableImage] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)
    advance: Callable[[int], None] = field(default=lambda count: None, repr=False)

    def rows(self) -> int:
        return sum(int(part.facts["rows"]) for part in self.parts)

    def has_labels(self) -> bool:
        return any(part.facts["labeled"] for part in self.parts)

    def count_skipped(self) -> int:
        return len(self.problems) + sum(int(part.facts["skipped"]) for part in self.parts)

    def skipped(self) -> Iterator[UnreadableImage]:
        yield from self.problems
        for part in self.parts:
            yield from part.skipped()

    def tensors(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each tensor, those with the widest numbers first."""
        rows, shape = self.rows(), self.shape
        tensors: dict[str, tuple[tuple[int, ...], str]] = {"indices": ((rows,), "int64")}
        if self.has_labels():
            tensors["labels"] = ((rows,), "int64")
        tensors["features"] = ((rows, shape.dim), "float32")
        if shape.patch_type is not None:
            tensors["patches"] = ((rows, shape.patches, shape.patch_dim), shape.patch_type)
        return tensors

    def described(self) -> str:
        """The facts as JSON, with the names of the classes where there are labels."""
        classes = {"classes": self.classes} if self.has_labels() and self.classes else {}
        return json.dumps(self.facts | {"images": self.rows(), "skipped": self.count_skipped()} | classes)

    def each(self) -> Iterator[StoredPart]:
        """One part after the other."""
        for part in self.parts:
            yield part
            self.advance(1)


def write_names(path: Path, joined: JoinedParts) -> None:
    write_lines(path, (name for part in joined.each() for name in part.names()))


def write_lines(path: Path, lines: Iterator[str]) -> None:
    """One line each; as a JSON string where a name has a line break or another odd character, or begins like one."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for line in lines:
                plain = line.isprintable() and not line.startswith('"')
                file.write((line if plain else json.dumps(line)) + "\n")

    write_atomically(path, write)
