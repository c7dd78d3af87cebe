"""Which tokens of an image a predicted feature is most like (the paper's Figure 6).

A masked patch is predicted from the context; the cosines of this prediction with the target encoder's features of all
patches of the same image go through a softmax, as in the paper (which gives no temperature; the default is 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn import functional as F

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.pixels import normalize
from flexpredict.data.sources.image_source import ImageSource, Record, RecordSource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError, printable
from flexpredict.masking import check_masking, sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.randomness import stream_key
from flexpredict.settings.augmentation import PRESETS
from flexpredict.sizes import Grid
from flexpredict.studies.analyses.opening import OpenedModel
from flexpredict.studies.analyses.output import Analysis, places_for, write_arrays
from flexpredict.studies.analyses.positions import in_words, neighborhood, place
from flexpredict.studies.figures import drawing

_SEEDS_TRIED = 200  # to suggest a mask that predicts the given patch
_SCENES = 100


@dataclass(frozen=True, eq=False)
class MaskedImage:
    """A mask and one of the patches that it hides.

    context: Nc and targets: M Nt, indices on the grid of targets; block, slot: position of the patch in targets.
    """

    grid: Grid
    context: Tensor
    targets: Tensor
    block: int
    slot: int

    @property
    def patch(self) -> int:
        return int(self.targets[self.block, self.slot])


def heatmap(similarity: Tensor, temperature: float = 1.0) -> Tensor:
    """Shares that sum to one, from the cosines of a prediction with all tokens: N -> N."""
    return torch.softmax(similarity.double() / temperature, dim=0).float()


@torch.no_grad()
def predicted_similarity(model: IJEPA, pixels: Tensor, view: MaskedImage) -> Tensor:
    """Cosines of the predicted feature of the masked patch with all tokens. pixels: 3 H W uint8 -> N."""
    images = normalize(pixels[None])
    prediction = model(images, view.context[None, None], view.targets[None, None])
    tokens = target_tokens(model, images, view.grid)[0]
    return F.cosine_similarity(prediction.predictions[0, view.block, view.slot][None].float(), tokens, dim=1)


@torch.no_grad()
def target_tokens(model: IJEPA, images: Tensor, grid: Grid) -> Tensor:
    """The targets for all patches, standardized if the model standardizes them: B 3 H W -> B N d_e."""
    everything = torch.arange(grid[0] * grid[1], device=images.device).expand(len(images), 1, 1, -1)
    features = model.target_features(images, everything)
    if model.standardization is not None:
        features = model.standardization(features, everything.flatten(0, 1))
    return features.flatten(1, 2)


def draw_mask(opened: OpenedModel, patch: str | None = None, mask_seed: int = 0) -> MaskedImage:
    """A mask as drawn in the run, and the given patch (default: the middle of the first target block)."""
    model = _predicting(opened)
    grid = model.mask_grid(torch.empty(1, 3, *opened.image_size))
    check_masking(opened.recipe.masking, grid)
    context, targets = _mask(opened, grid, mask_seed)
    if patch is None:
        return MaskedImage(grid, context, targets, 0, _middle(targets[0], grid))
    index = place(patch, grid, "patch")
    found = (targets == index).nonzero()
    if not len(found):
        others = (seed for seed in range(_SEEDS_TRIED) if (_mask(opened, grid, seed)[1] == index).any())
        seed = next(others, None)
        hint = f"With mask_seed={seed} it is." if seed is not None else "Choose another patch."
        raise UserError(f"patch={patch} is not predicted under the mask of mask_seed={mask_seed}. {hint}")
    return MaskedImage(grid, context, targets, int(found[0, 0]), int(found[0, 1]))


def draw_predictions(
    models: Sequence[OpenedModel],
    out: Path,
    *,
    image: Path | None = None,
    data: str | None = None,
    index: int = 0,
    patch: str | None = None,
    mask_seed: int = 0,
    temperature: float = 1.0,
) -> Analysis:
    """Write predictions.png and predictions.npz, for one or two runs.

    image: a file; default, image number `index` of `data`, which defaults to the first run's training images.
    """
    if not 1 <= len(models) <= 2:
        raise UserError(f"The predictions figure shows one or two runs, not {len(models)}.")
    if not temperature > 0:
        raise UserError(f"temperature={temperature:g} must be more than 0 (the paper's: 1).")
    view = draw_mask(models[0], patch, mask_seed)
    source, index = (_file(image), 0) if image is not None else (_source(models[0], data), index)
    pictures, maps = [], []
    for opened in models:
        model = _predicting(opened)
        if model.mask_grid(torch.empty(1, 3, *opened.image_size)) != view.grid:
            raise UserError(
                f"{models[0].name} and {opened.name} cut an image into different grids, so one mask does not fit "
                "both. Compare runs with the same image_size and patch_size."
            )
        pictures.append(_read(source, index, opened.image_size))
        maps.append(predicted_similarity(model, pictures[-1], view))
    paths = places_for(out, "predictions", "npz")
    heat = [heatmap(similarity, temperature) for similarity in maps]
    write_arrays(
        paths[1],
        image=pictures[0].permute(1, 2, 0),
        grid=view.grid,
        context=view.context,
        targets=view.targets,
        patch=view.patch,
        temperature=temperature,
        runs=[opened.name for opened in models],
        cosine=torch.stack(maps),
        heat=torch.stack(heat),
    )
    _draw(paths[0], models, pictures[0], view, heat, temperature)
    near, far = neighborhood(view.patch, view.grid)
    table = [
        {
            "run": opened.label,
            "cosine with the patch itself": f"{similarity[view.patch]:.2f}",
            "with its neighbors": f"{similarity[near].mean():.2f}",
            "with all others": f"{similarity[far].mean():.2f}",
            "most like": in_words(int(similarity.argmax()), view.grid),
        }
        for opened, similarity in zip(models, maps, strict=True)
    ]
    lines = (
        f"{printable(source.describe(index))}: the patch at {in_words(view.patch, view.grid)}, predicted from "
        f"{len(view.context)} of {view.grid[0] * view.grid[1]} patches.",
    )
    return Analysis(*paths, lines, tuple(table))


def _predicting(opened: OpenedModel) -> IJEPA:
    if isinstance(opened.model, IJEPA):
        return opened.model
    reason = {
        "mae": "it predicts pixels, not features that could be compared with those of other patches",
        "data2vec": "its encoder makes the predictions itself, so there is no predictor",
    }[opened.recipe.method]
    raise UserError(
        f"The predictions figure cannot be drawn for {opened.name}, a run of {opened.recipe.method}: {reason}. "
        "Use a run of ijepa; positions, norms and blur work for every method."
    )


def _mask(opened: OpenedModel, grid: Grid, seed: int) -> tuple[Tensor, Tensor]:
    masks = sample_masks(opened.recipe.masking, grid, stream_key(seed, "masks of the predictions figure"), 1)
    return masks.context[0, 0], masks.targets[0, 0]


def _middle(block: Tensor, grid: Grid) -> int:
    """The index within the block of the patch nearest to its center."""
    places = torch.stack((block // grid[1], block % grid[1]), dim=1).float()
    return int((places - places.mean(dim=0)).square().sum(dim=1).argmin())


def _file(path: Path) -> ImageSource:
    path = path.expanduser()
    if not path.is_file():
        raise UserError(f"There is no image file '{printable(str(path))}' (looked for in {Path.cwd()}).")
    return RecordSource(name=str(path), records=[Record(str(path), str(path))])


def _source(opened: OpenedModel, data: str | None) -> ImageSource:
    return open_source(data or opened.recipe.data or f"scenes:{_SCENES},size={min(opened.image_size)}")


def _read(source: ImageSource, index: int, image_size: tuple[int, int]) -> Tensor:
    """The largest centered part of an image that has the right shape: 3 H W uint8."""
    if not 0 <= index < len(source):
        raise UserError(f"index={index} is out of range: {source.name} has images 0 to {len(source) - 1}.")
    crops = draw_crops(PRESETS["none"], torch.zeros(1, dtype=torch.int64))
    images, unreadable = source.read(torch.tensor([index]), crops, image_size)
    if unreadable:
        raise UserError(f"{printable(str(unreadable[0]))}. Choose another image.")
    return images[0]


def _draw(
    path: Path,
    models: Sequence[OpenedModel],
    pixels: Tensor,
    view: MaskedImage,
    heat: Sequence[Tensor],
    temperature: float,
) -> None:
    (rows, columns), image = view.grid, pixels.permute(1, 2, 0)
    height, width = image.shape[0] // rows, image.shape[1] // columns
    top, left = view.patch // columns * height, view.patch % columns * width
    seen = torch.zeros(rows * columns, dtype=torch.uint8)
    seen[view.context] = 1
    masked = image * seen.view(rows, columns, 1).repeat_interleave(height, 0).repeat_interleave(width, 1)
    masked[top : top + height, left : left + width] = 255
    extent, where = (0, image.shape[1], image.shape[0], 0), in_words(view.patch, view.grid)
    panels = 2 + len(models)
    with drawing(path, 2.5 * panels, 3.1 * image.shape[0] / image.shape[1] + 0.2) as figure:
        axes = figure.subplots(1, panels)
        for axis, picture, title in zip(axes, (image, masked), ("image", "context, patch in white"), strict=False):
            axis.imshow(picture.numpy())
            axis.set_title(title)
        for axis, opened, shares in zip(axes[2:], models, heat, strict=True):
            axis.imshow(image.float().mean(dim=2).numpy(), cmap="gray", extent=extent, vmin=0, vmax=255)
            # Each on its own scale: at temperature 1 the shares differ only by a factor of about two.
            shown = axis.imshow(100 * shares.view(rows, columns).numpy(), cmap="inferno", alpha=0.75, extent=extent)
            axis.add_patch(Rectangle((left, top), width, height, fill=False, color="white", linewidth=2.5))
            axis.set_title(opened.label)
            figure.colorbar(shown, ax=axis, location="bottom", shrink=0.9, label="share of the softmax (%)")
        for axis in axes:
            axis.set_axis_off()
        figure.suptitle(f"Similarity to the prediction at {where} (temperature {temperature:g})", fontsize=11)
