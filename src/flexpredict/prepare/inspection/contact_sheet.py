"""A picture of a source: some of its images, and what the model sees of some of them."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from flexpredict.data.augmentation import blur_and_grey, draw_crops
from flexpredict.data.decoding import UnreadableImage, upright
from flexpredict.data.loader import keys_by_epoch, sample_order
from flexpredict.data.sources.encoded_images import evenly_spaced
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.masking import sample_masks
from flexpredict.randomness import stream_key
from flexpredict.settings.augmentation import Augmentation
from flexpredict.settings.masking import Masking

Pixels = NDArray[np.uint8]  # H W 3
Size = tuple[int, int]

THUMBNAILS, VIEWS = 48, 12
# Everything stands in eight columns: a thumbnail takes one, a view with its masks two.
_COLUMNS, _CELL, _GAP, _MARGIN = 8, 176, 12, 32
_WIDTH = 2 * _MARGIN + _COLUMNS * _CELL + (_COLUMNS - 1) * _GAP
_BETWEEN_PAIR = 4
INK, SOFT, PAPER, TILE = "#1d2129", "#69707d", "#ffffff", "#f2f3f5"
# Told apart by most colour-blind people too, and dark enough for the veil over hidden patches.
TARGET_COLOURS = ((240, 130, 0), (0, 120, 230), (220, 30, 100), (0, 155, 95), (135, 70, 205), (30, 30, 30))
_OUTLINE = 3
# The veil over hidden patches, and how much of the picture shines through. It is bluish, as some pictures are grey.
VEIL, GHOST = (214, 221, 234), 0.2
# Contexts are cut to the smallest of a batch, so masks are drawn for a batch of a usual size and one row is shown.
_BATCH = 64
_TRIES = 3  # for one view, where images are broken


def contact_sheet(
    source: ImageSource,
    readable: NDArray[np.int64],
    subtitle: str,
    image_size: Size,
    patch_size: int,
    augmentation: Augmentation,
    masking: Masking,
    seed: int,
) -> Image.Image:
    """readable: indices of images that can be read."""
    thumbnails, captions = _thumbnails(source, readable)
    views = training_views(source, augmentation, image_size, seed)
    pairs = []
    grid = image_size[0] // patch_size, image_size[1] // patch_size
    for step, view in enumerate(views):
        picture = view.resize((_CELL, max(1, round(_CELL * view.height / view.width))), Image.Resampling.BICUBIC)
        # The masks of one step have blocks of one size; those of several steps show what sizes there are.
        masks = sample_masks(masking, grid, stream_key(seed, "masks", step), _BATCH)
        context, targets = masks.context[step, 0].numpy(), masks.targets[step, 0].numpy()
        pairs += [picture, Image.fromarray(draw_masks(np.asarray(picture), grid, context, targets))]

    bands = [
        _text_band(source.name, 26, INK),
        _text_band(f"{subtitle} · {len(thumbnails)} of them, evenly spaced:", 15, SOFT),
        _space(16),
        _tiles(thumbnails, captions),
    ]
    if pairs:
        bands += [
            _space(28),
            _text_band("What the model sees", 20, INK),
            _text_band(
                f"Random crops of {image_size[0]}x{image_size[1]} pixels, as training with seed {seed} would make"
                f" them; beside each, which of its {grid[0]}x{grid[1]} patches are context and which are targets.",
                15,
                SOFT,
            ),
            _legend(pairs[0], masking),
            _space(8),
            _pairs(pairs),
        ]
    return _stacked([_space(_MARGIN - 8), *bands, _space(_MARGIN)])


def training_views(source: ImageSource, augmentation: Augmentation, image_size: Size, seed: int) -> list[Image.Image]:
    """The first images that training with this seed would see. Broken ones are left out."""
    positions = torch.arange(_TRIES * VIEWS)
    epochs, indices = sample_order(seed, len(source), positions)
    keys = keys_by_epoch(seed, "augmentation", epochs, indices)
    views: list[Image.Image] = []
    for first in range(0, len(positions), VIEWS):
        now = slice(first, first + VIEWS)
        crops = draw_crops(augmentation, keys[now])
        images, failures = source.read(indices[now], crops, image_size)
        images = blur_and_grey(images, crops)
        views += [_picture(image) for row, image in enumerate(images) if row not in failures]
        if len(views) >= VIEWS:
            break
    return views[:VIEWS]


def draw_masks(picture: Pixels, grid: Size, context: NDArray[np.int64], targets: NDArray[np.int64]) -> Pixels:
    """Patches outside the context veiled, each target outlined. context: Nc, targets: M Nt, patch indices."""
    luma = picture @ np.array([0.299, 0.587, 0.114])
    hidden = (GHOST * luma[..., None] + (1 - GHOST) * np.array(VEIL)).round().astype(np.uint8)
    drawn = np.where(_area(context, grid, picture.shape)[..., None], picture, hidden)
    for number, target in enumerate(targets):
        area = _area(target, grid, picture.shape)
        drawn[area & ~_eroded(area, _OUTLINE)] = TARGET_COLOURS[number % len(TARGET_COLOURS)]
    return drawn


def _area(patches: NDArray[np.int64], grid: Size, shape: Sequence[int]) -> NDArray[np.bool_]:
    """Which pixels belong to these patches: H W."""
    chosen = np.zeros(grid, np.bool_)
    chosen.reshape(-1)[patches] = True
    rows, columns = (np.arange(side) * count // side for side, count in zip(shape, grid, strict=False))
    return chosen[rows[:, None], columns]


def _eroded(area: NDArray[np.bool_], by: int) -> NDArray[np.bool_]:
    """Without the pixels that are nearer than `by` to its edge, or to that of the picture."""
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
            continue  # Readable a moment ago: a file that was taken away since.
        captions.append(class_name(source, index))
    return thumbnails, captions


def class_name(source: ImageSource, index: int) -> str:
    label = -1 if source.labels is None else int(source.labels[index])
    if label < 0:
        return ""
    return source.classes[label] if source.classes else str(label)


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
        draw.rectangle((left, top, left + _CELL - 1, top + height - 1), fill=TILE)
        fitted = ImageOps.contain(picture, (_CELL, height), Image.Resampling.BICUBIC)
        band.paste(fitted, (left + (_CELL - fitted.width) // 2, top + (height - fitted.height) // 2))
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
    left = _label(draw, left + side, "hidden from it")
    targets = 1 if masking.kind in ("random", "blocks") else masking.targets
    for colour in TARGET_COLOURS[:targets]:
        draw.rectangle((left, top, left + side - 1, top + side - 1), VEIL, colour, _OUTLINE)
        left += side + 4
    _label(draw, left - 4, "targets: to be predicted from the context")
    return band


def _label(draw: ImageDraw.ImageDraw, left: int, text: str) -> int:
    """Writes a word of the legend, and says where the next may begin."""
    draw.text((left + 6, 6), text, SOFT, font(14))
    return left + 6 + round(font(14).getlength(text)) + 26


def _text_band(text: str, size: int, colour: str) -> Image.Image:
    band = _space(round(size * 1.5))
    ImageDraw.Draw(band).text((_MARGIN, 0), shortened(text, size, _WIDTH - 2 * _MARGIN), colour, font(size))
    return band


def shortened(text: str, size: int, room: int) -> str:
    """The text, or as much of its two ends as there is room for: long paths differ at their ends."""
    text = _drawable(text)
    if font(size).getlength(text) <= room:
        return text
    kept = len(text)
    while kept > 1 and font(size).getlength(short := f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}") > room:
        kept -= 1
    return short


def _drawable(text: str) -> str:
    """PIL's own font has hardly more than ASCII: accents are dropped, and other letters become question marks."""
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    kept = (letter for letter in letters if not unicodedata.combining(letter))
    return "".join(letter if " " <= letter <= "~" or letter == "·" else "?" for letter in kept)


@lru_cache  # as the font is unpacked anew each time it is loaded
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _space(height: int) -> Image.Image:
    return Image.new("RGB", (_WIDTH, height), PAPER)


def _stacked(bands: list[Image.Image]) -> Image.Image:
    sheet = _space(sum(band.height for band in bands))
    top = 0
    for band in bands:
        sheet.paste(band, (0, top))
        top += band.height
    return sheet


def _picture(image: Tensor) -> Image.Image:
    """3 H W uint8."""
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
