"""`flexpredict similar`: the images that are most like given ones."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.data.arguments import ImagesLike
from flexpredict.errors import UserError
from flexpredict.features.arguments import FrozenFeatures
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import ranged

if TYPE_CHECKING:
    from flexpredict.features.similarity import SimilarResult

PICTURES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


@dataclass(frozen=True, kw_only=True)
class SimilarSettings(FrozenFeatures):
    """Settings of `similar`.

    Args:
        data: images to search.
        query: image files, or numbers of images of the data (counted from 0).
        top: number of neighbors of each query.
        out: the picture to write, a .png, .jpg or .webp file.
    """

    data: ImagesLike = field(kw_only=False)
    query: list[str | int] = field(kw_only=False)
    top: int = ranged(8, least=1)
    out: str | Path | None = "similar.png"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is not None and Path(self.out).suffix.lower() not in PICTURES:
            raise UserError(f"out={self.out} is not a picture of a known format. Use {', '.join(PICTURES)}.")
        if not self.query:
            raise UserError("No query was given. Name an image file, or the number of an image of the data.")


@takes_fields_of(SimilarSettings)
def similar(asked: SimilarSettings) -> "SimilarResult":
    """Find the images that are most like given ones, by the cosine similarity of their features.

    Gives a table and a picture of the nearest neighbors of each query. Features are cached, so the next queries take
    seconds. A query that is itself in the data is left out of its neighbors.
    """
    from flexpredict.features.similarity import find_similar

    space = asked.open_workspace()
    return find_similar(space, space.open_source(asked.data), asked)
