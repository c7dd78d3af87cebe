"""The images of a source that are most like a given one, by the cosine similarity of their features."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from PIL import Image
from rich.table import Table
from rich.text import Text
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, Record, RecordSource, class_name
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, did_you_mean, printable
from flexpredict.features.extraction import Features, cached_features, extract_features
from flexpredict.features.similar import PICTURES, SimilarSettings
from flexpredict.features.similarity_sheet import Neighbor, SheetRow, similarity_sheet
from flexpredict.features.workspace import Workspace
from flexpredict.files import explained, write_atomically
from flexpredict.settings.extraction import Extraction
from flexpredict.training.engine import on_first_rank

_COMPARED_AT_ONCE = 1 << 16
# More neighbors than asked for are looked up, because the data may hold links to a query, which are left out.
_SPARE = 8


@dataclass(frozen=True)
class QueryResult:
    """The neighbors of one query, the nearest first."""

    query: str
    neighbors: list[Neighbor]
    in_data: bool  # The query was found in the data itself, and left out.


@dataclass(frozen=True)
class SimilarResult:
    """The result of `similar`."""

    queries: list[QueryResult]
    files: list[Path]
    warnings: tuple[str, ...] = ()

    @property
    def neighbors(self) -> list[list[Neighbor]]:
        """The neighbors of each query."""
        return [found.neighbors for found in self.queries]

    def tables(self) -> list[tuple[str, Table]]:
        """One table for each query."""
        shown = []
        for found in self.queries:
            note = " (which is itself in the data, and left out)" if found.in_data else ""
            shown.append((f"Most like {printable(found.query)}{note}:", _table([found], with_query=False)))
        return shown

    def table(self) -> Table:
        return _table(self.queries, with_query=True)

    def to_dict(self) -> dict[str, Any]:
        return {"queries": [asdict(found) for found in self.queries], "files": [str(path) for path in self.files]}


def find_similar(space: Workspace, source: ImageSource, how: SimilarSettings) -> SimilarResult:
    """The nearest images of each query. A query that is one of the images is not its own neighbor."""
    asked = [_query(query, source) for query in how.query]
    # First, so that a query that cannot be read is refused before hours of extraction.
    wanted = _query_features(space.encoder, asked, how, space.fabric)
    features = cached_features(space.encoder, source, how, space.fabric, space.console)
    if not len(features.indices):
        raise UserError(f"There are no images to search in {source.name}.")
    found = _neighbors(source, features, asked, wanted, how.top)
    out = None if how.out is None else Path(how.out)
    if out is not None:
        rows = [SheetRow(query.record, result.neighbors) for query, result in zip(asked, found, strict=True)]
        on_first_rank(space.fabric, lambda: _write_picture(similarity_sheet(source, rows), out))
    return SimilarResult(found, [] if out is None else [out])


def nearest(vectors: Tensor, wanted: Tensor, top: int, chunk: int = _COMPARED_AT_ONCE) -> tuple[Tensor, Tensor]:
    """Cosine similarities, descending, and rows of the nearest vectors. vectors: N D, wanted: Q D -> Q k, Q k.

    `chunk` vectors are compared at once, so that memory does not depend on their number.
    """
    wanted = F.normalize(wanted.float(), dim=1)
    best = wanted.new_empty(len(wanted), 0)
    rows = torch.empty(len(wanted), 0, dtype=torch.int64)
    for first in range(0, len(vectors), chunk):
        cosines = wanted @ F.normalize(vectors[first : first + chunk].float(), dim=1).T
        here = cosines.topk(min(top, cosines.shape[1]), dim=1)
        candidates = torch.cat((best, here.values), dim=1)
        best, order = candidates.topk(min(top, candidates.shape[1]), dim=1)
        rows = torch.cat((rows, here.indices + first), dim=1).gather(1, order)
    return best.clamp(-1, 1), rows


@dataclass(frozen=True)
class _Query:
    """An image file, or an image of the data."""

    record: Record
    index: int | None = None

    def is_same(self, source: ImageSource, index: int) -> bool:
        """Whether an image of the data is the query itself, perhaps by another name."""
        if self.index is not None:
            return index == self.index
        try:
            stored, path = source.encoded(index), self.record.encoded
            return isinstance(stored, str) and isinstance(path, str) and Path(stored).samefile(path)
        except (OSError, UnreadableImage):
            return False  # The file was removed after its features were cached.


def _query(query: str | int, source: ImageSource) -> _Query:
    text = str(query)
    path = Path(text).expanduser()
    if isinstance(query, str) and path.is_file():
        return _Query(Record(text, str(path)))
    if not text.isdecimal():
        near = did_you_mean(
            path.name, [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else ()
        )
        raise UserError(
            f"There is no image file '{printable(text)}' (looked for in {Path.cwd()}).{near} Name a file, or the "
            f"number of an image of {source.name}."
        )
    index = int(text)
    if index >= len(source):
        raise UserError(f"Query {text} is neither a file nor an image of {source.name} (0 to {len(source) - 1}).")
    try:
        return _Query(Record(source.describe(index), source.encoded(index)), index)
    except UnreadableImage as failure:
        raise _unreadable(failure) from failure


def _query_features(encoder: ImageEncoder, asked: list[_Query], how: Extraction, fabric: Fabric) -> Tensor:
    """Features of the queries, Q D."""
    images = RecordSource(name="the queries", records=[query.record for query in asked])
    features = extract_features(encoder, images, how, device=fabric.device)
    if features.skipped:
        raise _unreadable(features.skipped[0])
    return features.vectors


def _unreadable(failure: UnreadableImage) -> UserError:
    return UserError(f"The query {printable(str(failure))}. Give an image that can be read.")


def _neighbors(
    source: ImageSource, features: Features, asked: list[_Query], wanted: Tensor, top: int
) -> list[QueryResult]:
    cosines, rows = nearest(features.vectors, wanted, top + _SPARE)
    found = []
    for query, similarities, indices in zip(asked, cosines.tolist(), features.indices[rows].tolist(), strict=True):
        others = [
            Neighbor(index, similarity, source.describe(index), class_name(source, index))
            for similarity, index in zip(similarities, indices, strict=True)
            if not query.is_same(source, index)
        ]
        found.append(QueryResult(query.record.name, others[:top], len(others) < len(indices)))
    return found


def _table(queries: list[QueryResult], with_query: bool) -> Table:
    with_class = any(neighbor.class_name for found in queries for neighbor in found.neighbors)
    table = Table()
    if with_query:
        table.add_column("query", overflow="fold")
    table.add_column("", justify="right")
    table.add_column("similarity", justify="right")
    for name in ("image", "class")[: 1 + with_class]:
        table.add_column(name, overflow="fold")
    for found in queries:
        for rank, neighbor in enumerate(found.neighbors, start=1):
            cells = [Text(printable(found.query))] if with_query else []
            words = [neighbor.name, neighbor.class_name][: 1 + with_class]
            cells += [Text(str(rank)), Text(f"{neighbor.similarity:.3f}"), *(Text(printable(word)) for word in words)]
            table.add_row(*cells)
    return table


def _write_picture(picture: Image.Image, out: Path) -> None:
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, lambda path: picture.save(path, PICTURES[out.suffix.lower()]))
