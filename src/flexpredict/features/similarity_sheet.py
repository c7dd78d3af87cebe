"""A picture of queries and the images most like them: one row for each query, which stands at the left."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from PIL import Image, ImageDraw

from flexpredict.data.decoding import UnreadableImage, upright
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.sheet_drawing import INK, PAPER, SOFT, TILE, font, paste_fitted, shortened

_CELL, _GAP, _MARGIN, _AFTER_QUERY = 160, 12, 32, 36
_HEADER, _BETWEEN_ROWS = 34, 22
_BAR, _TRACK = "#2f6fde", "#e3e7ee"


@dataclass(frozen=True)
class Neighbor:
    """An image of the data that is like a query."""

    index: int
    similarity: float  # cosine, -1 to 1
    name: str
    class_name: str  # empty if it has none


@dataclass(frozen=True)
class SheetRow:
    """A row of the picture."""

    query: Record
    neighbors: Sequence[Neighbor]


def similarity_sheet(source: ImageSource, rows: Sequence[SheetRow]) -> Image.Image:
    """Below each neighbor are its similarity, with a bar from 0 to 1, its class and its name."""
    queries = [upright(row.query.encoded, row.query.name, shorter_side=_CELL) for row in rows]
    columns = max(1, *(len(row.neighbors) for row in rows))
    # Tiles have the aspect ratio that is typical of the images.
    aspects = [picture.width / picture.height for picture in queries]
    aspects += [width / height for height, width in source.sizes()]
    tile = _CELL, round(_CELL / float(np.clip(np.median(aspects), 0.75, 1.6)))
    classes = any(neighbor.class_name for row in rows for neighbor in row.neighbors)
    step = tile[1] + (66 if classes else 48) + _BETWEEN_ROWS
    width = 2 * _MARGIN + (columns + 1) * _CELL + (columns - 1) * _GAP + _AFTER_QUERY
    sheet = Image.new("RGB", (width, 2 * _MARGIN + _HEADER + len(rows) * step - _BETWEEN_ROWS), PAPER)
    draw = ImageDraw.Draw(sheet)
    first = _MARGIN + _CELL + _AFTER_QUERY
    draw.text((_MARGIN, _MARGIN - 6), "Query", INK, font(18))
    title = shortened(f"Most similar of {len(source):,} images in {source.name}", 18, width - first - _MARGIN)
    draw.text((first, _MARGIN - 6), title, INK, font(18))
    for number, (row, query) in enumerate(zip(rows, queries, strict=True)):
        top = _MARGIN + _HEADER + number * step
        paste_fitted(sheet, query, (_MARGIN, top), tile)
        draw.rectangle((_MARGIN - 4, top - 4, _MARGIN + _CELL + 3, top + tile[1] + 3), outline=INK, width=2)
        draw.text((_MARGIN, top + tile[1] + 8), _short_name(row.query.name, source), SOFT, font(13))
        for place, neighbor in enumerate(row.neighbors):
            left = first + place * (_CELL + _GAP)
            _draw_neighbor(sheet, draw, source, neighbor, (left, top), tile)
    return sheet


def _draw_neighbor(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    source: ImageSource,
    neighbor: Neighbor,
    corner: tuple[int, int],
    tile: tuple[int, int],
) -> None:
    try:
        picture = upright(source.encoded(neighbor.index), neighbor.name, shorter_side=_CELL)
    except UnreadableImage:
        picture = Image.new("RGB", tile, TILE)  # The file was removed after its features were cached.
    paste_fitted(sheet, picture, corner, tile)
    left, top = corner[0], corner[1] + tile[1] + 6
    draw.text((left, top), f"{neighbor.similarity:.3f}", INK, font(15))
    track = left + 52, top + 7, left + _CELL - 1, top + 12
    draw.rectangle(track, fill=_TRACK)
    filled = round((track[2] - track[0]) * max(0.0, neighbor.similarity))
    draw.rectangle((track[0], track[1], track[0] + filled, track[3]), fill=_BAR)
    if neighbor.class_name:
        draw.text((left, top + 20), shortened(neighbor.class_name, 14, _CELL), INK, font(14))
    name_top = top + (40 if neighbor.class_name else 22)
    draw.text((left, name_top), _short_name(neighbor.name, source), SOFT, font(13))


def _short_name(name: str, source: ImageSource) -> str:
    """Without the name of the data and without folders, which most images share."""
    return shortened(PurePath(name.removeprefix(source.name).lstrip("/, ")).name, 13, _CELL)
