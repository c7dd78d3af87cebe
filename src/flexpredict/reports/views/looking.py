"""Opens models and images, and collects their views for the page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.reports.views.exploring import explorer_data
from flexpredict.reports.views.films import small_films
from flexpredict.reports.views.pictures import picture_data
from flexpredict.reports.views.shown_images import choose_images
from flexpredict.reports.views.stored import MOST_MODELS, Views
from flexpredict.reports.views.viewed_model import ViewedModel, open_viewed

_EXPLORED = {1: 12, 2: 12, 3: 8, 4: 6}  # images, by the number of models
_MOST_TOKENS = 4096  # of all explored images together


def look_into(names: Sequence[str | Path], images: str | None = None, source: ImageSource | None = None) -> Views:
    """The views of runs and encoders.

    Args:
        names: of the models.
        images: to show; default: the training images of the first run.
        source: the images, if they are open already.
    """
    views = Views()
    if len(names) > MOST_MODELS:
        views.notes.append(f"Only the first {MOST_MODELS} of {len(names)} can be explored on one page.")
    for name in names[:MOST_MODELS]:
        viewed = open_viewed(name)
        if source is None:
            source = _open_images(viewed, images)
        model, shown = _look(viewed, source, _EXPLORED[min(MOST_MODELS, len(names))])
        model["films"] = small_films(Path(name))
        views.add(model, shown)
    views.models += [None] * (len(names) - len(views.models))
    return views


@torch.no_grad()
def _look(viewed: ViewedModel, source: ImageSource, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    tokens = viewed.grid[0] * viewed.grid[1]
    images = choose_images(source, viewed.image_size, max(2, min(count, _MOST_TOKENS // tokens)))
    model = {
        "what": viewed.encoder.what,
        **explorer_data(viewed, images.pixels(images.explored)),
        "pictures": {"grid": viewed.grid, **picture_data(viewed, images)},
    }
    return model, images.described()


def _open_images(viewed: ViewedModel, images: str | None) -> ImageSource:
    data = images or (viewed.opened.recipe.data if viewed.opened is not None else None)
    if data is None:
        raise UserError(f"{viewed.encoder.what} does not name training images to show. Set images=FOLDER.")
    return open_source(data)
