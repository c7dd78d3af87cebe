"""Draws docs/overview.png: built-in scenes, what the model sees of them, and what the noise does to a position."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from flexpredict.data.scenes.scenes import draw_scenes
from flexpredict.masking import sample_masks
from flexpredict.model.positions import sincos_positions
from flexpredict.randomness import normal, sample_keys
from flexpredict.settings.masking import Masking
from flexpredict.settings.positions import noise_std_at_start

SIZE, GRID, SCENES, GAP, CAPTION = 128, (8, 8), 7, 6, 26
WIDTH = 768
LEVELS = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0)
COLORS = ((230, 97, 1), (94, 60, 153), (26, 133, 255), (212, 17, 89))


def main() -> None:
    images = draw_scenes(np.arange(40, 40 + SCENES), size=SIZE, split="test").images
    levels = ", ".join(f"{level:g}" for level in LEVELS)
    rows = [
        ("built-in scenes", list(images)),
        ("seen by the model, and the four blocks it predicts", [masked(image, i) for i, image in enumerate(images)]),
        (f"where a hidden token may seem to be, at noise-to-signal {levels}", [blurred_place(x) for x in LEVELS]),
    ]
    sheet = Image.new("RGB", (SCENES * (SIZE + GAP) + GAP, len(rows) * (SIZE + CAPTION) + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for line, (caption, pictures) in enumerate(rows):
        top = line * (SIZE + CAPTION)
        pen.text((GAP, top + 6), caption, fill="black", font_size=14)
        for column, picture in enumerate(pictures):
            sheet.paste(Image.fromarray(picture), (GAP + column * (SIZE + GAP), top + CAPTION))
    sheet.save(Path(__file__).with_name("overview.png"))


def masked(image: np.ndarray, row: int) -> np.ndarray:
    """The context as it is, targets in colors, the rest gray."""
    masks = sample_masks(Masking(), GRID, key=5, batch=SCENES)
    side = SIZE // GRID[0]
    shown = np.full_like(image, 225)

    def patch(index: int) -> tuple[slice, slice]:
        y, x = divmod(index, GRID[1])
        return slice(y * side, (y + 1) * side), slice(x * side, (x + 1) * side)

    for index in masks.context[row, 0].tolist():
        shown[patch(index)] = image[patch(index)]
    for block, color in zip(masks.targets[row, 0].tolist(), COLORS, strict=True):
        for index in block:
            shown[patch(index)] = 0.45 * shown[patch(index)] + 0.55 * np.array(color)
    return shown


def blurred_place(ratio: float, grid: tuple[int, int] = (16, 16), encoder_dim: int = 192) -> np.ndarray:
    """How often each position is the nearest to ψ_j + A n, for a new A: brighter is more often."""
    positions = sincos_positions(grid, WIDTH)
    middle = grid[0] // 2 * grid[1] + grid[1] // 2
    projection = 0.02 * normal(sample_keys(1, torch.arange(WIDTH)), encoder_dim)
    noise = noise_std_at_start(ratio, encoder_dim) * normal(sample_keys(2, torch.arange(4000)), encoder_dim)
    nearest = torch.cdist(positions[middle] + noise @ projection.T, positions).argmin(dim=1)
    share = torch.bincount(nearest, minlength=len(positions)).float().view(grid)
    shade = (share / share.max()).sqrt().mul(255).byte().numpy()
    return np.asarray(Image.fromarray(shade).resize((SIZE, SIZE), Image.Resampling.NEAREST).convert("RGB"))


if __name__ == "__main__":
    main()
