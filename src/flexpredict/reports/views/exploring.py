"""The data of the page's explorer: small arrays from which the browser computes all maps.

For each image the features of all patches, for each mask the predictions of its targets, and for the model the
positions ψ with many draws of the noise A n. Maps are cosines of these (the paper's Figure 6), and shares of draws
that are nearest to each position (Figure 5).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from flexpredict.data.pixels import normalize
from flexpredict.masking import sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model.positions import noise_to_signal
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.reports.views.packing import packed_halves, packed_rows
from flexpredict.reports.views.viewed_model import ViewedModel
from flexpredict.sizes import Grid
from flexpredict.studies.analyses.opening import OpenedModel
from flexpredict.studies.analyses.predictions import target_tokens

DRAWS = 256  # of the noise
MASKS = 3
_DIMS = 96  # of features on the page: more are reduced to the directions that matter most


@torch.no_grad()
def explorer_data(viewed: ViewedModel, pixels: Tensor) -> dict[str, Any]:
    """All data of one model. pixels: K 3 H W uint8, the images to explore."""
    data: dict[str, Any] = {"grid": viewed.grid, "layers": [], "masks": [], "positions": None}
    opened = viewed.opened
    if opened is not None and isinstance(opened.model, IJEPA):
        data |= _predictions(opened.model, opened, pixels)
    if data["grid"] == viewed.grid:
        for name, tokens in _layers(viewed, pixels):
            data["layers"].append({"name": name, **packed_rows(_reduced(tokens, _basis(tokens)))})
    if opened is not None:
        data["positions"] = _positions(opened, data["grid"])
    return data


def _predictions(model: IJEPA, opened: OpenedModel, pixels: Tensor) -> dict[str, Any]:
    """The target features, as the first layer, and predictions of them under a few masks."""
    device = next(model.parameters()).device
    images = normalize(pixels.to(device))
    grid = model.mask_grid(images)
    masks = sample_masks(opened.recipe.masking, grid, stream_key(0, "masks of the page"), MASKS)
    tokens = target_tokens(model, images, grid)
    predicted = [_predicted(model, images, masks.context[row, 0], masks.targets[row, 0]) for row in range(MASKS)]
    basis = _basis(torch.cat((tokens.flatten(0, 1), *(values.flatten(0, 1) for _, values in predicted))))
    return {
        "grid": grid,
        "layers": [{"name": "prediction targets", **packed_rows(_reduced(tokens, basis))}],
        "masks": [
            {
                "context": masks.context[row, 0].tolist(),
                "targets": targets.tolist(),
                "predictions": packed_rows(_reduced(values, basis)),
            }
            for row, (targets, values) in enumerate(predicted)
        ],
    }


def _predicted(model: IJEPA, images: Tensor, context: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Target patches, T, and their predictions in each image, K T D; a patch in several blocks: in the first."""
    rows = len(images)
    found = model(
        images, context.to(images.device).expand(rows, 1, -1), targets.to(images.device).expand(rows, 1, -1, -1)
    )
    flat = targets.flatten()
    places, inverse = flat.unique(return_inverse=True)
    first = torch.full((len(places),), len(flat)).scatter_reduce(0, inverse, torch.arange(len(flat)), "amin")
    return places, found.predictions.flatten(1, 2)[:, first.to(images.device)].float()


def _layers(viewed: ViewedModel, pixels: Tensor) -> list[tuple[str, Tensor]]:
    """The last layer and one in the middle, K N D."""
    encoder, depth = viewed.encoder, viewed.encoder.depth
    count = depth // 2 + 1
    layers = encoder.layers(pixels, count)
    middle = depth - count + 1
    shown = [(f"last layer, {depth}", layers[-1])]
    # Layers of a convolutional network have other grids.
    if middle < depth and layers[0].shape[1] == layers[-1].shape[1]:
        shown.append((f"layer {middle} of {depth}", layers[0]))
    return shown


def _positions(opened: OpenedModel, grid: Grid) -> dict[str, Any] | None:
    """ψ, draws of A n at level 1, the ratio ‖A n‖ / ‖ψ‖ at that level, and the level of the run."""
    positions, matrix = opened.positions.cpu(), opened.matrix.cpu()
    if len(positions) != grid[0] * grid[1]:
        return None
    keys = sample_keys(stream_key(0, "noise of the page"), torch.arange(DRAWS))
    return {
        "places": packed_halves(positions),
        "noise": packed_halves(normal(keys, matrix.shape[1]) @ matrix.T),
        "ratio": noise_to_signal(matrix, positions, 1.0),
        "level": opened.noise_std,
    }


def _basis(tokens: Tensor) -> Tensor | None:
    """The directions that matter most for cosines, D d; None if all are kept. tokens: ... D."""
    rows = F.normalize(tokens.flatten(0, -2).float(), dim=1)
    if rows.shape[1] <= _DIMS:
        return None
    vectors: Tensor = torch.linalg.eigh(rows.T @ rows).eigenvectors  # of ascending eigenvalues
    return vectors[:, -_DIMS:]


def _reduced(tokens: Tensor, basis: Tensor | None) -> Tensor:
    return tokens.float() if basis is None else tokens.float() @ basis
