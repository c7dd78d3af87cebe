"""A picture of queries and the images most like them: each query at the left, its neighbors in lines beside it."""

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
_IN_A_LINE, _MOST_LINES = 8, 6  # neighbors of a query beside and below each other
_SPANS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # ranges of similarity below 1 that bars may cover


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
    """Draw the picture: below each neighbor its similarity, with a bar, its class and its name."""
    queries = [upright(row.query.encoded, row.query.name, shorter_side=_CELL) for row in rows]
    shown = [row.neighbors[: _IN_A_LINE * _MOST_LINES] for row in rows]
    tile, step, low = _layout(source, queries, [neighbor for neighbors in shown for neighbor in neighbors])
    columns = min(_IN_A_LINE, max(1, *map(len, shown)))
    lines = [max(1, -(-len(neighbors) // _IN_A_LINE)) for neighbors in shown]
    width = 2 * _MARGIN + (columns + 1) * _CELL + (columns - 1) * _GAP + _AFTER_QUERY
    sheet = Image.new("RGB", (width, 2 * _MARGIN + _HEADER + sum(lines) * step - _BETWEEN_ROWS), PAPER)
    draw = ImageDraw.Draw(sheet)
    first = _MARGIN + _CELL + _AFTER_QUERY
    draw.text((_MARGIN, _MARGIN - 6), "Query", INK, font(18))
    title = f"Most similar of {len(source):,} images in {source.name}"
    draw.text((first, _MARGIN - 6), shortened(title, 18, width - first - _MARGIN), INK, font(18))
    if low > 0:
        draw.text((first, _MARGIN + 15), f"bars from {low:g} to 1", SOFT, font(13))
    top = _MARGIN + _HEADER
    for row, query, neighbors, count in zip(rows, queries, shown, lines, strict=True):
        bottom = top + tile[1]
        paste_fitted(sheet, query, (_MARGIN, top), tile)
        draw.rectangle((_MARGIN - 4, top - 4, _MARGIN + _CELL + 3, bottom + 3), outline=INK, width=2)
        draw.text((_MARGIN, bottom + 8), _short_name(row.query.name, source), SOFT, font(13))
        if len(row.neighbors) > len(neighbors):
            draw.text((_MARGIN, bottom + 28), f"the first {len(neighbors)} of {len(row.neighbors):,}", SOFT, font(13))
        for place, neighbor in enumerate(neighbors):
            left = first + place % _IN_A_LINE * (_CELL + _GAP)
            _draw_neighbor(sheet, source, neighbor, (left, top + place // _IN_A_LINE * step), tile, low)
        top += count * step
    return sheet


def _layout(
    source: ImageSource, queries: Sequence[Image.Image], shown: Sequence[Neighbor]
) -> tuple[tuple[int, int], int, float]:
    """Width and height of a picture, the step from one line to the next, and the similarity where bars begin."""
    # Tiles have the aspect ratio that is typical of the images.
    aspects = [picture.width / picture.height for picture in queries]
    aspects += [width / height for height, width in source.sizes()]
    tile = _CELL, round(_CELL / float(np.clip(np.median(aspects), 0.75, 1.6)))
    text = 66 if any(neighbor.class_name for neighbor in shown) else 48
    span = 1 - min((neighbor.similarity for neighbor in shown), default=0.0)
    # For similarities between 0.998 and 1, bars that begin at 0 would all look full.
    low = 1 - next((nice for nice in _SPANS if span < nice + 1e-9), 1.0)
    return tile, tile[1] + text + _BETWEEN_ROWS, low


def _draw_neighbor(
    sheet: Image.Image,
    source: ImageSource,
    neighbor: Neighbor,
    corner: tuple[int, int],
    tile: tuple[int, int],
    low: float,
) -> None:
    """corner: left and top. tile: width and height. low: the similarity where bars begin."""
    draw = ImageDraw.Draw(sheet)
    try:
        picture = upright(source.encoded(neighbor.index), neighbor.name, shorter_side=_CELL)
    except UnreadableImage:
        picture = Image.new("RGB", tile, TILE)  # The file was removed after its features were cached.
    paste_fitted(sheet, picture, corner, tile)
    left, top = corner[0], corner[1] + tile[1] + 6
    draw.text((left, top), f"{neighbor.similarity:.{3 if low < 0.98 else 4}f}", INK, font(15))
    track = left + 60, top + 7, left + _CELL - 1, top + 12
    draw.rectangle(track, fill=_TRACK)
    filled = round((track[2] - track[0]) * max(0.0, (neighbor.similarity - low) / (1 - low)))
    draw.rectangle((track[0], track[1], track[0] + filled, track[3]), fill=_BAR)
    if neighbor.class_name:
        draw.text((left, top + 20), shortened(neighbor.class_name, 14, _CELL), INK, font(14))
    name_top = top + (40 if neighbor.class_name else 22)
    draw.text((left, name_top), _short_name(neighbor.name, source), SOFT, font(13))


def _short_name(name: str, source: ImageSource) -> str:
    """The file name without the name of the data and its folders, which most images share."""
    return shortened(PurePath(name.removeprefix(source.name).lstrip("/, ")).name, 13, _CELL)
