"""The images of a source that are most like a given one, by the cosine of their features."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.data.sources.streams import Record
from flexpredict.encoders.frozen import FrozenEncoder, open_encoder
from flexpredict.errors import UserError, did_you_mean, printable
from flexpredict.features.extraction import Extraction, Features, cached_features, extract_features
from flexpredict.features.similarity_sheet import Neighbour, Shown, similarity_sheet
from flexpredict.files import write_atomically
from flexpredict.prepare.inspection.contact_sheet import class_name
from flexpredict.prepare.inspection.passing_stream import KeptImages
from flexpredict.progress import Counting
from flexpredict.training.engine import launch_fabric, on_first_rank

_COMPARED_AT_ONCE = 1 << 16
# A query may be in the data more than once, by links; those are left out of so many more than are asked for.
_SPARE = 8
_PICTURES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


def similar(
    encoder: str | Path | FrozenEncoder,
    data: str | Sequence[str] | ImageSource,
    queries: Sequence[str | int],
    how: Extraction | None = None,
    *,
    top: int = 8,
    out: Path | None = None,
    fabric: Fabric | None = None,
    console: Console | None = None,
) -> list[list[Neighbour]]:
    """The `top` nearest images of each query, the nearest first. Features are kept, so the next queries are quick.

    Args:
        encoder: what `open_encoder` takes, or what it gives.
        data: what `open_source` takes, or what it gives: the images to search.
        queries: paths of images, or numbers of images of `data`. A query that is itself in `data` is not its own
            neighbour.
        how: layers, pooling, image size and so on.
        top: neighbours of each query.
        out: a picture of the queries and their neighbours, if one is wanted.
        fabric: the processes that share the work; this one alone by default.
        console: where tables go; the standard output by default.
    """
    if top < 1:
        raise UserError(f"top is {top}; use at least 1.")
    if out is not None and out.suffix.lower() not in _PICTURES:
        raise UserError(f"--out {out} is no picture that is known here. Use {', '.join(_PICTURES)}.")
    if not queries:
        raise UserError("No query was given. Name an image file, or the number of an image of the data.")
    fabric, how = fabric or launch_fabric("auto", 1), how or Extraction()
    console = console or Console(soft_wrap=True, quiet=not fabric.is_global_zero)
    encoder = encoder if isinstance(encoder, FrozenEncoder) else open_encoder(encoder)
    with Counting(console, "listing", "images") as counting:
        source = open_source(data, counting.add) if isinstance(data, str | Sequence) else data
    asked = [_query(query, source) for query in queries]
    # First, as a query that cannot be read should not be found out after an hour.
    wanted = _query_features(encoder, asked, how, fabric)
    features = cached_features(encoder, source, how, fabric, console)
    if not len(features.indices):
        raise UserError(f"There are no images to search in {source.name}.")
    found = _neighbours(source, features, asked, wanted, top)
    on_first_rank(fabric, lambda: _publish(source, asked, found, out, console))
    return [neighbours for neighbours, _ in found]


def nearest(vectors: Tensor, wanted: Tensor, top: int, chunk: int = _COMPARED_AT_ONCE) -> tuple[Tensor, Tensor]:
    """The cosines and the rows of the nearest vectors, falling. vectors: N D, wanted: Q D -> Q k, Q k.

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
            return False  # It was taken away since its features were made.


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
        raise UserError(f"Query {text} is no file and no image of {source.name}, which has 0 to {len(source) - 1}.")
    try:
        return _Query(Record(source.describe(index), source.encoded(index)), index)
    except UnreadableImage as failure:
        raise _unreadable(failure) from failure


def _query_features(encoder: FrozenEncoder, asked: list[_Query], how: Extraction, fabric: Fabric) -> Tensor:
    """Q D."""
    images = KeptImages(name="the queries", records=[query.record for query in asked])
    features = extract_features(encoder, images, how, device=fabric.device)
    if features.skipped:
        raise _unreadable(features.skipped[0])
    return features.vectors


def _unreadable(failure: UnreadableImage) -> UserError:
    return UserError(f"The query {printable(str(failure))}. Give an image that can be read.")


def _neighbours(
    source: ImageSource, features: Features, asked: list[_Query], wanted: Tensor, top: int
) -> list[tuple[list[Neighbour], bool]]:
    """Of each query, and whether it was itself among them."""
    cosines, rows = nearest(features.vectors, wanted, top + _SPARE)
    found = []
    for query, similarities, indices in zip(asked, cosines.tolist(), features.indices[rows].tolist(), strict=True):
        others = [
            Neighbour(index, similarity, source.describe(index), class_name(source, index))
            for similarity, index in zip(similarities, indices, strict=True)
            if not query.is_same(source, index)
        ]
        found.append((others[:top], len(others) < len(indices)))
    return found


def _publish(
    source: ImageSource,
    asked: list[_Query],
    found: list[tuple[list[Neighbour], bool]],
    out: Path | None,
    console: Console,
) -> None:
    for query, (neighbours, was_there) in zip(asked, found, strict=True):
        note = " (which is itself in the data, and left out)" if was_there else ""
        console.print(f"Most like {printable(query.record.name)}{note}:", highlight=False, markup=False)
        console.print(_table(neighbours))
    if out is None:
        return
    shown = [Shown(query.record, neighbours) for query, (neighbours, _) in zip(asked, found, strict=True)]
    _write_picture(similarity_sheet(source, shown), out)
    console.print(f"Written: {out}", highlight=False, markup=False)


def _table(neighbours: list[Neighbour]) -> Table:
    table = Table()
    classes = any(neighbour.class_name for neighbour in neighbours)
    table.add_column("", justify="right")
    table.add_column("similarity", justify="right")
    table.add_column("image", overflow="fold")
    if classes:
        table.add_column("class", overflow="fold")
    for rank, neighbour in enumerate(neighbours, start=1):
        words = [neighbour.name, neighbour.class_name][: 1 + classes]
        table.add_row(str(rank), f"{neighbour.similarity:.3f}", *(Text(printable(word)) for word in words))
    return table


def _write_picture(picture: Image.Image, out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, lambda path: picture.save(path, _PICTURES[out.suffix.lower()]))
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}. Name another --out.") from error
