"""Pictures of features: their principal components as colors, attention, and nearest neighbors."""

from typing import Any

import torch
from matplotlib import colormaps
from torch import Tensor

from flexpredict.features.similarity import nearest
from flexpredict.reports.views.attention import last_attention
from flexpredict.reports.views.packing import png
from flexpredict.reports.views.shown_images import ShownImages
from flexpredict.reports.views.viewed_model import ViewedModel
from flexpredict.sizes import Grid

_QUERIES, _NEIGHBORS = 6, 5
_BATCH = 16


@torch.no_grad()
def picture_data(viewed: ViewedModel, images: ShownImages) -> dict[str, Any]:
    """Components and attention of each explored image; for a few of them, nearest neighbors in the gallery."""
    pixels = images.pixels(images.explored)
    grid = viewed.grid
    features = viewed.encoder(pixels).float().cpu()
    attention = last_attention(viewed.encoder, pixels, grid[0] * grid[1])
    return {
        "components": [png(colors) for colors in component_colors(features, grid)],
        "attention": None if attention is None else [png(colors) for colors in _heat(attention.cpu(), grid)],
        "neighbors": _neighbors(viewed, images),
    }


def component_colors(features: Tensor, grid: Grid) -> Tensor:
    """The first three principal components of all patches as red, green and blue: K N D -> K rows columns 3."""
    rows = features.flatten(0, 1)
    centered = rows - rows.mean(dim=0)
    _, vectors = torch.linalg.eigh(centered.T @ centered)
    found = centered @ vectors[:, -3:].flip(1)
    # The sign of a component is arbitrary; this choice does not depend on the machine.
    found = found * found.pow(3).sum(dim=0).sign()
    low, high = found.quantile(0.02, dim=0), found.quantile(0.98, dim=0)
    colors: Tensor = ((found - low) / (high - low).clamp_min(1e-9)).clamp(0, 1)
    if colors.shape[1] < 3:
        colors = torch.cat((colors, colors.new_full((len(colors), 3 - colors.shape[1]), 0.5)), dim=1)
    return colors.view(len(features), *grid, 3)


def _heat(values: Tensor, grid: Grid) -> Tensor:
    """Heat maps, each scaled from its lowest to its highest value: K N -> K rows columns 3."""
    low, high = values.amin(dim=1, keepdim=True), values.amax(dim=1, keepdim=True)
    shares = (values - low) / (high - low).clamp_min(1e-12)
    colors = torch.from_numpy(colormaps["inferno"](shares.numpy())[..., :3])
    return colors.view(len(values), *grid, 3)


def _neighbors(viewed: ViewedModel, images: ShownImages) -> dict[str, Any]:
    rows = torch.arange(len(images.indices))
    vectors = torch.cat([viewed.encoder.pooled(images.pixels(part)).cpu() for part in rows.split(_BATCH)])
    queries = images.explored[:_QUERIES]
    cosines, found = nearest(vectors, vectors[queries], _NEIGHBORS + 1)
    rankings: list[dict[str, Any]] = []
    for place, (query, similar, others) in enumerate(
        zip(queries.tolist(), cosines.tolist(), found.tolist(), strict=True)
    ):
        ranked = [(other, cosine) for other, cosine in zip(others, similar, strict=True) if other != query]
        rankings.append(
            {"image": place, "found": [{"row": other, "cosine": cosine} for other, cosine in ranked[:_NEIGHBORS]]}
        )
    shown = sorted({hit["row"] for ranking in rankings for hit in ranking["found"]})
    return {
        "searched": len(rows),
        "rankings": rankings,
        "images": {
            str(row): {"name": images.name(row), "class": images.class_name(row), "uri": images.thumbnail(row)}
            for row in shown
        },
    }
