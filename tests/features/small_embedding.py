"""Embeddings small enough for tests: a few pictures, in parts of 16."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mean_color import MeanColor
from tiny import write_pictures

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import ImageSource, open_source
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.features.embed import embed
from flexpredict.features.embedding import EmbedResult
from flexpredict.settings.extraction import Extraction

HOW = Extraction(batch_size=6)
PART = 16
PROBE = 1  # an encoder is tried on a blank image first


def embedded(
    source: Any,
    out: Path,
    encoder: ImageEncoder | str | None = None,
    how: Extraction = HOW,
    patches: Any = None,
    **options: Any,
) -> EmbedResult:
    wanted = {"patches": patches is not None, "dtype": patches or "float16", "accelerator": "cpu"}
    return embed(encoder or MeanColor(), source, out, **asdict(how), **wanted, **options)


def folder(path: Path, count: int = 40) -> ImageSource:
    """Pictures of two classes, unequally many."""
    write_pictures(path / "pictures" / "first", count - 10, size=32)
    write_pictures(path / "pictures" / "second", 10, size=40)
    return open_source(str(path / "pictures"))


class FakeStream:
    name, classes, length, pieces = "pipe:fake", None, None, 2

    def __init__(self, entries: list[Record | UnreadableImage]) -> None:
        self.entries = entries

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        yield from self.entries[:5] if piece == 0 else self.entries[5:]
