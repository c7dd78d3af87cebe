"""The contact sheet of a set of images: some images, and what the model sees of some images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage, upright
from flexpredict.data.loader import training_batches
from flexpredict.data.sources.image_source import ImageSource, class_name, evenly_spaced
from flexpredict.errors import UserError
from flexpredict.masking import check_masking, sample_masks
from flexpredict.prepare.survey import Survey
from flexpredict.randomness import stream_key
from flexpredict.settings.augmentation import Augmentation
from flexpredict.settings.masking import Masking
from flexpredict.sheet_drawing import INK, PAPER, SOFT, font, paste_fitted, shortened
from flexpredict.sizes import Grid, Size

Pixels = NDArray[np.uint8]  # H W 3

THUMBNAILS, VIEWS = 48, 12
# Everything is in eight columns: a thumbnail takes one, a view with its masks two.
_COLUMNS, _CELL, _GAP, _MARGIN = 8, 176, 12, 32
_WIDTH = 2 * _MARGIN + _COLUMNS * _CELL + (_COLUMNS - 1) * _GAP
_BETWEEN_PAIR = 4
# Distinct for most color-blind people too, and dark enough for the veil over masked patches.
TARGET_COLORS = ((240, 130, 0), (0, 120, 230), (220, 30, 100), (0, 155, 95), (135, 70, 205), (30, 30, 30))
_OUTLINE = 3
# The veil over masked patches, and how much of the picture shows through. It is bluish, as some pictures are gray.
VEIL, SHOWS_THROUGH = (214, 221, 234), 0.2
# Contexts are cut to the smallest of a batch, so masks are drawn for a batch of a usual size and one row is shown.
_BATCH = 64


@dataclass(frozen=True)
class TrainingView:
    """How training sees images."""

    image_size: Size
    patch_size: int
    augmentation: Augmentation
    masking: Masking
    seed: int

    @property
    def grid(self) -> Grid:
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    def check(self) -> None:
        """Raise a `UserError` if images of this size cannot be cut into such patches or masked in this way."""
        height, width = self.image_size
        if height % self.patch_size or width % self.patch_size:
            raise UserError(
                f"image_size={height}x{width} cannot be cut into patches of patch_size={self.patch_size}. Choose an "
                "image_size that is a multiple of patch_size."
            )
        check_masking(self.masking, self.grid)


def contact_sheet(
    source: ImageSource, readable: NDArray[np.int64], survey: Survey, view: TrainingView
) -> Image.Image:
    """Draw the contact sheet. readable: indices of images that can be read."""
    thumbnails, captions = _thumbnails(source, readable)
    bands = [
        _text_band(source.name, 26, INK),
        _text_band(f"{_subtitle(survey)} · {len(thumbnails)} of them, evenly spaced:", 15, SOFT),
        _space(16),
        _tiles(thumbnails, captions),
    ]
    if views := training_views(source, view.augmentation, view.image_size, view.seed):
        (height, width), (rows, columns) = view.image_size, view.grid
        explanation = (
            f"Random crops of {height}x{width} pixels, as training with seed {view.seed} makes them; beside each,"
            f" which of its {rows}x{columns} patches are context and which are targets."
        )
        bands += [
            _space(28),
            _text_band("What the model sees", 20, INK),
            _text_band(explanation, 15, SOFT),
            _legend(views[0], view.masking),
            _space(8),
            _pairs([picture for step, picture in enumerate(views) for picture in _with_masks(picture, step, view)]),
        ]
    bands = [_space(_MARGIN - 8), *bands, _space(_MARGIN)]
    return Image.fromarray(np.concatenate([np.asarray(band) for band in bands]))


def training_views(source: ImageSource, augmentation: Augmentation, image_size: Size, seed: int) -> list[Image.Image]:
    """The first images that training with this seed would see; none if too many are broken for that."""
    try:
        batch = next(
            training_batches(
                source, augmentation, [image_size], seed=seed, batch_size=VIEWS, first_step=0, last_step=1
            )
        )
    except UserError:
        return []
    return [_picture(image) for image in batch.images]


def draw_masks(picture: Pixels, grid: Grid, context: NDArray[np.int64], targets: NDArray[np.int64]) -> Pixels:
    """Veil patches outside the context and outline each target. context: Nc, targets: M Nt, patch indices."""
    luma = picture @ np.array([0.299, 0.587, 0.114])
    veiled = (SHOWS_THROUGH * luma[..., None] + (1 - SHOWS_THROUGH) * np.array(VEIL)).round().astype(np.uint8)
    drawn = np.where(_area(context, grid, picture.shape)[..., None], picture, veiled)
    for number, target in enumerate(targets):
        area = _area(target, grid, picture.shape)
        drawn[area & ~_eroded(area, _OUTLINE)] = TARGET_COLORS[number % len(TARGET_COLORS)]
    return drawn


def _with_masks(picture: Image.Image, step: int, view: TrainingView) -> tuple[Image.Image, Image.Image]:
    """A training view, and a copy with the masks of one step drawn into it."""
    height = max(1, round(_CELL * picture.height / picture.width))
    picture = picture.resize((_CELL, height), Image.Resampling.BICUBIC)
    # The masks of one step have blocks of one size; those of several steps show which sizes there are.
    masks = sample_masks(view.masking, view.grid, stream_key(view.seed, "masks", step), _BATCH)
    context, targets = masks.context[step, 0].numpy(), masks.targets[step, 0].numpy()
    return picture, Image.fromarray(draw_masks(np.asarray(picture), view.grid, context, targets))


def _area(patches: NDArray[np.int64], grid: Grid, shape: Sequence[int]) -> NDArray[np.bool_]:
    """Which pixels belong to these patches: H W."""
    chosen = np.zeros(grid, np.bool_)
    chosen.reshape(-1)[patches] = True
    rows, columns = (np.arange(side) * count // side for side, count in zip(shape, grid, strict=False))
    return chosen[rows[:, None], columns]


def _eroded(area: NDArray[np.bool_], by: int) -> NDArray[np.bool_]:
    """The area without pixels that are nearer than `by` to its edge, or to the edge of the picture."""
    for _ in range(by):
        wide = np.pad(area, 1)
        area = area & wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return area


def _thumbnails(source: ImageSource, readable: NDArray[np.int64]) -> tuple[list[Image.Image], list[str]]:
    thumbnails, captions = [], []
    for index in readable[evenly_spaced(len(readable), THUMBNAILS)].tolist():
        try:
            thumbnails.append(upright(source.encoded(index), source.describe(index), shorter_side=_CELL))
        except UnreadableImage:
            continue  # It was readable a moment ago: the file was removed since.
        captions.append(class_name(source, index))
    return thumbnails, captions


def _subtitle(survey: Survey) -> str:
    parts = [f"{survey.examined if survey.images is None else survey.images:,} images"]
    if survey.examined != survey.images:
        parts.append(f"{survey.examined:,} examined")
    if survey.classes:
        parts.append(f"{survey.classes.count:,} classes")
    if survey.sizes:
        parts.append(f"median shorter side {survey.sizes.shorter_side.median:,.0f} pixels")
    if survey.broken:
        parts.append(f"broken: {survey.broken:,}")
    if survey.duplicates.superfluous:
        parts.append(f"superfluous copies: {survey.duplicates.superfluous:,}")
    return " · ".join(parts)


def _tiles(pictures: list[Image.Image], captions: list[str]) -> Image.Image:
    """Pictures in tiles of the shape that most of them have."""
    if not pictures:
        return _space(0)
    aspect = float(np.clip(np.median([picture.width / picture.height for picture in pictures]), 0.75, 2.0))
    height = round(_CELL / aspect)
    step = height + (28 if any(captions) else _GAP)
    band = _space(-(-len(pictures) // _COLUMNS) * step)
    draw = ImageDraw.Draw(band)
    for place, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left, top = _MARGIN + place % _COLUMNS * (_CELL + _GAP), place // _COLUMNS * step
        paste_fitted(band, picture, (left, top), (_CELL, height))
        draw.text((left, top + height + 3), shortened(caption, 13, _CELL), SOFT, font(13))
    return band


def _pairs(pictures: list[Image.Image]) -> Image.Image:
    """View, masks, view, masks, …"""
    step = pictures[0].height + 20
    band = _space(-(-len(pictures) // _COLUMNS) * step)
    for place, picture in enumerate(pictures):
        pair, second = divmod(place % _COLUMNS, 2)
        # The first pair begins where the first column does, and the last ends where the last column ends.
        left = _MARGIN + round(pair * (_WIDTH - 2 * _MARGIN - 2 * _CELL - _BETWEEN_PAIR) / (_COLUMNS // 2 - 1))
        band.paste(picture, (left + second * (_CELL + _BETWEEN_PAIR), place // _COLUMNS * step))
    return band


def _legend(view: Image.Image, masking: Masking) -> Image.Image:
    band = _space(30)
    draw = ImageDraw.Draw(band)
    left, top, side = _MARGIN, 8, 14
    band.paste(ImageOps.fit(view, (side, side)), (left, top))
    left = _label(draw, left + side, "context: what the encoder sees")
    draw.rectangle((left, top, left + side - 1, top + side - 1), fill=VEIL)
    left = _label(draw, left + side, "masked")
    targets = 1 if masking.kind in ("random", "blocks") else masking.targets
    for color in TARGET_COLORS[:targets]:
        draw.rectangle((left, top, left + side - 1, top + side - 1), VEIL, color, _OUTLINE)
        left += side + 4
    _label(draw, left - 4, "targets: to be predicted from the context")
    return band


def _label(draw: ImageDraw.ImageDraw, left: int, text: str) -> int:
    """Write a word of the legend. Returns where the next may begin."""
    draw.text((left + 6, 6), text, SOFT, font(14))
    return left + 6 + round(font(14).getlength(text)) + 26


def _text_band(text: str, size: int, color: str) -> Image.Image:
    band = _space(round(size * 1.5))
    ImageDraw.Draw(band).text((_MARGIN, 0), shortened(text, size, _WIDTH - 2 * _MARGIN), color, font(size))
    return band


def _space(height: int) -> Image.Image:
    return Image.new("RGB", (_WIDTH, height), PAPER)


def _picture(image: Tensor) -> Image.Image:
    """3 H W uint8."""
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
