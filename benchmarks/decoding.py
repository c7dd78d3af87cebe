"""Crops per second that one core makes from image files: ours against torchvision on PIL.

    python benchmarks/decoding.py                        # about a minute, with artificial photographs
    python benchmarks/decoding.py --photos FOLDER        # with your own JPEGs or PNGs, brought to the same sizes

Both go from a file to a normalized float32 batch: a random crop of 30 to 100 % of the area, resized to 224 x 224.
Ours is the code of the loader, plus normalizing, which training does on the device. Theirs is the usual
`Image.open(path).convert("RGB")`, RandomResizedCrop, ToTensor, Normalize. Files are in the page cache. "Packed" are
the 500 x 375 files shrunk by `upright` to a shorter side of 256, and written as JPEG of quality 90.

The two take turns; numbers are medians over rounds of processor time. The difference, in levels of 0 to 255, is
between the crops that both make at the same boxes: the error from decoding a JPEG at reduced scale.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import Contender, announce_machine, spread
from PIL import Image, ImageOps
from rich import box
from rich.table import Table
from torch import Tensor

from flexpredict.data.augmentation import Crops, blur_and_grayscale, draw_crops
from flexpredict.data.decoding import decode, upright
from flexpredict.data.pixels import MEAN, STD, normalize
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.settings.augmentation import PRESETS
from flexpredict.torchvision_repair import repair

_SIZE = (224, 224)
_PACKED_SIDE = 256
# Grain of enlarged pictures, as a deviation in levels: 4000 x 3000 pixels then take 3 to 4 MB, as from a camera.
_GRAIN = 5.0


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    title: str
    files: Sequence[str]
    their_files: Sequence[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="time for each row (default: 10)")
    parser.add_argument("--photos", type=Path, help="folder of photographs to use instead of artificial ones")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = announce_machine()
    table = Table("set", box=box.MARKDOWN, title="Crops of 224 x 224, images/s on one core")
    for heading in ("kB a file", "ours", "torchvision", "ratio (quartiles)", "mean difference"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        # Another process writes the files: after large arrays, malloc keeps memory that it otherwise returns after
        # every large image, as in the workers of a loader.
        with ProcessPoolExecutor(1, get_context("spawn")) as another:
            rows = another.submit(write_rows, Path(folder), arguments.photos).result()
        for row in rows:
            console.print(f"{row.title} ...")
            table.add_row(*cells(row, arguments.seconds))
    console.print(table)


def cells(row: Row, seconds: float) -> list[str]:
    own, theirs = processor_seconds((partial(ours, row.files), torchvision_on(row.their_files)), seconds)
    ratio = spread([their / our for our, their in zip(own, theirs, strict=True)])
    return [
        row.title,
        f"{np.mean([Path(file).stat().st_size for file in row.files]) / 1e3:.0f}",
        f"{len(row.files) / spread(own).median:.0f}",
        f"{len(row.files) / spread(theirs).median:.0f}",
        f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})",
        f"{difference(row.files):.2f}",
    ]


def processor_seconds(contenders: Sequence[Contender], seconds: float) -> list[list[float]]:
    """Processor time of each contender in each of at least three rounds; they take turns."""
    times: list[list[float]] = [[] for _ in contenders]
    for contender in contenders:
        contender(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for contender, of_rounds in zip(contenders, times, strict=True):
            start = time.process_time()
            contender(len(of_rounds) + 1)
            of_rounds.append(time.process_time() - start)
    return times


def ours(files: Sequence[str], number: int) -> Tensor:
    crops = drawn(len(files), number)
    return normalize(blur_and_grayscale(cropped(files, crops), crops))


def torchvision_on(files: Sequence[str]) -> Contender:
    repair()
    from torchvision import transforms

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(_SIZE, scale=(0.3, 1.0)),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )

    def theirs(number: int) -> Any:
        return torch.stack([transform(Image.open(file).convert("RGB")) for file in files])

    return theirs


def difference(files: Sequence[str]) -> float:
    """Mean absolute difference over pixels, files and boxes."""
    totals = []
    for number in range(3):
        crops = drawn(len(files), number)
        for index, crop in enumerate(cropped(files, crops)):
            with Image.open(files[index]) as image:
                exact = image.convert("RGB").crop(crops.box(index, _SIZE, image.height, image.width))
            exact = exact.resize(_SIZE, Image.Resampling.BILINEAR)
            totals.append(np.abs(crop.permute(1, 2, 0).numpy().astype(int) - np.asarray(exact)).mean())
    return float(np.mean(totals))


def drawn(count: int, number: int) -> Crops:
    return draw_crops(PRESETS["ijepa"], sample_keys(stream_key(0, "crops", number), torch.arange(count)))


def cropped(files: Sequence[str], crops: Crops) -> Tensor:
    images = torch.empty(len(files), 3, *_SIZE, dtype=torch.uint8)
    for index, file in enumerate(files):
        images[index] = decode(file, file, _SIZE, partial(crops.box, index, _SIZE), bool(crops.flip[index]))
    return images


def write_rows(folder: Path, photos: Path | None) -> list[Row]:
    pictures = [made_up(number) for number in range(16)] if photos is None else taken(photos, 16)
    small, medium, large = (
        [
            write(folder / f"{width}-{index}.jpg", fitted_to(picture, (width, height), index))
            for index, picture in enumerate(pictures[:count])
        ]
        for width, height, count in ((500, 375, 16), (1600, 1200, 8), (4000, 3000, 3))
    )
    packed = [write(folder / f"p-{index}.jpg", upright(file, file, _PACKED_SIDE)) for index, file in enumerate(small)]
    return [
        Row("500 x 375", small, small),
        Row("1600 x 1200", medium, medium),
        Row("4000 x 3000", large, large),
        Row("500 x 375, ours packed", packed, small),
        Row("500 x 375, both packed", packed, packed),
    ]


def write(path: Path, picture: Image.Image) -> str:
    picture.save(path, quality=90)
    return str(path)


def taken(folder: Path, count: int) -> list[Image.Image]:
    files = sorted(file for suffix in ("jpg", "jpeg", "png") for file in folder.rglob(f"*.{suffix}"))
    if not files:
        raise SystemExit(f"There are no .jpg, .jpeg or .png files in {folder} or below.")
    chosen = [str(files[index * len(files) // count]) for index in range(count)]
    return [upright(file, file) for file in chosen]


def made_up(number: int, height: int = 750, width: int = 1000) -> Image.Image:
    """Clouds on several scales: as in photographs, finer detail varies less (amplitude frequency^-0.6)."""
    pixels = torch.full((1, 3, height, width), 128.0)
    for octave in range(2, 10):
        rows, columns = 3 * 2**octave // 4, 2**octave
        key = torch.tensor(stream_key(number, "clouds", octave))
        noise = normal(key, 3 * rows * columns).view(1, 3, rows, columns)
        noise = noise.mean(dim=1, keepdim=True) * 1.5 + 0.4 * noise  # Colors of a photograph mostly change together.
        pixels += F.interpolate(noise, size=(height, width), mode="bicubic") * 100 / 2 ** (0.6 * octave)
    return Image.fromarray(pixels[0].permute(1, 2, 0).clamp(0, 255).byte().numpy())


def fitted_to(picture: Image.Image, size: tuple[int, int], number: int) -> Image.Image:
    """The picture fitted to a size; if enlarged, with the grain that a photograph of that size would have."""
    fitted = ImageOps.fit(picture, size, Image.Resampling.BICUBIC)
    if size[0] <= picture.width:
        return fitted
    pixels = torch.from_numpy(np.array(fitted)).float()
    grain = normal(torch.tensor(stream_key(number, "grain")), size[0] * size[1]).view(size[1], size[0], 1)
    return Image.fromarray((pixels + _GRAIN * grain).round().clamp(0, 255).byte().numpy())


if __name__ == "__main__":
    main()
