"""Pictures of colored tiles with index masks, in the layouts of public data sets."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from flexpredict.evaluation.index_masks import write_mask
from flexpredict.randomness import sample_keys, stream_key, uniform

TILE = 8
COLORS = np.array([(90, 90, 90), (220, 60, 50), (40, 200, 70), (60, 70, 230)])


def tiles(
    number: int, rows: int = 4, columns: int = 4, classes: int = 3
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Picture H W 3 and classes H W: tiles of 8 pixels in the noisy color of their class."""
    drawn = uniform(sample_keys(stream_key(3, "tiles"), torch.tensor([number])), rows * columns)[0].numpy()
    coarse = (drawn * classes).astype(np.uint8).reshape(rows, columns)
    mask = np.kron(coarse, np.ones((TILE, TILE), np.uint8))
    noise = uniform(sample_keys(stream_key(4, "noise"), torch.tensor([number])), mask.size * 3)[0].numpy()
    pixels = COLORS[mask] + 50 * (noise.reshape(*mask.shape, 3) - 0.5)
    return pixels.astype(np.uint8), mask


def write_pair(number: int, image: Path, mask: Path, numbers: Mapping[int, int] | None = None) -> None:
    """numbers: what stands in the file for each class."""
    pixels, classes = tiles(number, columns=4 + number % 3)
    for path in (image, mask):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(image, quality=98) if image.suffix == ".jpg" else Image.fromarray(pixels).save(image)
    table = np.arange(256, dtype=np.uint8)
    for number_of_class, stored in (numbers or {}).items():
        table[number_of_class] = stored
    write_mask(table[classes], mask)


def two_folders(root: Path, count: int = 12, first: int = 0) -> str:
    for number in range(first, first + count):
        write_pair(number, root / "images" / f"{number:03d}.png", root / "masks" / f"{number:03d}.png")
    return f"{root / 'images'},masks={root / 'masks'}"


def voc(root: Path, train: int = 12, test: int = 6) -> Path:
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    for split, numbers in (("train", range(train)), ("val", range(train, train + test))):
        names = [f"2007_{number:06d}" for number in numbers]
        (lists / f"{split}.txt").write_text("\n".join(names) + "\n")
        for number, name in zip(numbers, names, strict=True):
            write_pair(number, root / "JPEGImages" / f"{name}.jpg", root / "SegmentationClass" / f"{name}.png")
    return root


def ade20k(root: Path) -> Path:
    """Classes count from 1."""
    for split, numbers in (("training", range(12)), ("validation", range(12, 18))):
        for number in numbers:
            name = f"ADE_{split}_{number:08d}"
            mask = root / "annotations" / split / f"{name}.png"
            write_pair(number, root / "images" / split / f"{name}.jpg", mask, {0: 1, 1: 2, 2: 3})
    return root


def cityscapes(root: Path, kind: str) -> Path:
    """Classes are road, sidewalk and building; kind: labelIds or labelTrainIds."""
    numbers_in_file = {0: 7, 1: 8, 2: 11} if kind == "labelIds" else {}
    for split, numbers in (("train", range(12)), ("val", range(12, 18))):
        for number in numbers:
            name = f"aachen/aachen_{number:06d}_000019"
            mask = root / "gtFine" / split / f"{name}_gtFine_{kind}.png"
            write_pair(number, root / "leftImg8bit" / split / f"{name}_leftImg8bit.png", mask, numbers_in_file)
    return root
