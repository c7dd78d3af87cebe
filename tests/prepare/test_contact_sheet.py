"""The picture of `inspect`: the views that training begins with, and masks where they are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from inspected_sources import look, write
from pictures import encoded as content
from pictures import smooth_picture as picture
from PIL import Image

from flexpredict.data.loader import training_batches
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.opening import open_images
from flexpredict.prepare.contact_sheet import SHOWS_THROUGH, TARGET_COLORS, VEIL, VIEWS, draw_masks, training_views
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.settings.masking import Masking


@pytest.mark.parametrize("shape", [(64, 64), (96, 64), (70, 113)])
def test_masks_are_drawn_where_they_are(shape: tuple[int, int]) -> None:
    grid = (4, 4)
    pixels = np.asarray(picture(*shape, 8)).copy()
    context = np.array([0, 3, 12, 15])
    targets = np.array([[5, 6, 9, 10], [9, 10, 13, 14]])  # two blocks of 2x2, of which the second overlaps the first
    drawn = draw_masks(pixels, grid, context, targets)

    def middle(patch: int) -> tuple[int, int]:
        row, column = divmod(patch, 4)
        return int((row + 0.5) * shape[0] / 4), int((column + 0.5) * shape[1] / 4)

    for patch in range(16):
        at = middle(patch)
        if patch in context:
            assert (drawn[at] == pixels[at]).all()
        else:
            luma = 0.299 * pixels[at][0] + 0.587 * pixels[at][1] + 0.114 * pixels[at][2]
            assert np.abs(drawn[at] - (SHOWS_THROUGH * luma + (1 - SHOWS_THROUGH) * np.array(VEIL))).max() <= 1
    first, second = (np.all(drawn == color, axis=-1) for color in TARGET_COLORS[:2])
    top, left, right = -(-shape[0] // 4), -(-shape[1] // 4), -(-3 * shape[1] // 4) - 1
    # The first begins with the second row of patches; the second reaches down to the edge of the picture.
    assert first[top].nonzero()[0].tolist() == list(range(left, right + 1)) and not first[:top].any()
    assert second[-1].nonzero()[0].tolist() == list(range(left, right + 1))
    assert second[:, left].nonzero()[0].tolist() == list(range(-(-shape[0] // 2), shape[0]))
    outlined = first | second
    assert not outlined[:, :left].any() and not outlined[:, right + 1 :].any()


def test_the_views_are_what_training_begins_with(tmp_path: Path) -> None:
    files = {f"{number:02d}.png": content(picture(48 + number, 70, number)) for number in range(9)}
    source = open_images(str(write(tmp_path, files)))
    augmentation = PRESETS["stop"]
    # Nine images: the second epoch begins with the tenth view.
    batch = next(
        training_batches(source, augmentation, [(32, 48)], seed=5, batch_size=VIEWS, first_step=0, last_step=1)
    )
    views = [np.asarray(view) for view in training_views(source, augmentation, (32, 48), seed=5)]
    assert (np.stack(views) == batch.images.permute(0, 2, 3, 1).numpy()).all()


def test_broken_images_are_left_out_of_the_views(mixed: Path) -> None:
    views = training_views(open_images(str(mixed)), Augmentation(), (32, 32), seed=0)
    assert len(views) == VIEWS and all(view.size == (32, 32) for view in views)


@pytest.mark.parametrize("masking", [Masking(), Masking("random"), Masking(targets=7, target_scale=(0.05, 0.1))])
def test_the_sheet_shows_the_colors_of_the_images_and_of_all_targets(masking: Masking, tmp_path: Path) -> None:
    colors = torch.tensor([[200, 40, 40], [40, 200, 40]], dtype=torch.uint8)
    source = ArraySource("plain", colors[:, None, None].expand(-1, 64, 64, 3).contiguous())
    look(source, tmp_path, masking=masking, augmentation=PRESETS["none"])
    sheet = Image.open(tmp_path / "contact_sheet.png")
    assert sheet.width <= 1600
    pixels = np.asarray(sheet)
    # A tile each, and half of the views.
    assert all((pixels == color).all(axis=-1).sum() > 7 * 176 * 176 for color in colors.numpy())
    expected = 1 if masking.kind == "random" else min(masking.targets, len(TARGET_COLORS))
    drawn = [(pixels == color).all(axis=-1).sum() for color in TARGET_COLORS]
    assert min(drawn[:expected]) > 1000 and not any(drawn[expected:5])


def test_names_that_the_font_lacks_are_drawn_as_near_as_can_be(tmp_path: Path) -> None:
    sheets = []
    for name in ("Café Straße", "Cafe Strasse", "Cafe"):
        look(ArraySource(name, torch.zeros(2, 32, 32, 3, dtype=torch.uint8)), tmp_path)
        sheets.append((tmp_path / "contact_sheet.png").read_bytes())
    assert sheets[0] == sheets[1] != sheets[2]
