"""Small pictures that can be told apart, and the ways to store them."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset
from PIL import Image

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import ImageSource
from flexpredict.data.sources.streams import ImageStream
from flexpredict.randomness import sample_keys, uniform
from flexpredict.settings.augmentation import PRESETS

CLASSES = ("ant", "bee", "cat")


def picture(number: int, size: int = 24) -> Image.Image:
    """Its top left pixels tell the number."""
    pixels = uniform(sample_keys(7, torch.tensor([number])), size * size * 3).mul(200).byte().view(size, size, 3)
    pixels[:4, :4] = torch.tensor([number % 256, number // 256, 255 - number % 256])
    return Image.fromarray(np.ascontiguousarray(pixels.numpy()))


def png(number: int) -> bytes:
    return encoded(picture(number))


def smooth_picture(height: int = 40, width: int = 60, seed: int = 0) -> Image.Image:
    """Smooth, so that JPEG keeps it, and without any symmetry."""
    coarse = uniform(torch.tensor(seed), 5 * 7 * 3).mul(256).to(torch.uint8).view(5, 7, 3)
    return Image.fromarray(coarse.numpy()).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """The content of a file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def turned(orientation: int) -> Image.Exif:
    """EXIF with this orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def number_of(pixels: torch.Tensor | np.ndarray | Image.Image) -> int:
    """Which picture this is: 3 H W, or a PIL image."""
    if isinstance(pixels, Image.Image):
        pixels = np.asarray(pixels.convert("RGB")).transpose(2, 0, 1)
    return int(pixels[0, 1, 1]) + 256 * int(pixels[1, 1, 1])


def numbers_in(source: ImageSource) -> list[int]:
    """What reading all images of a source in order gives."""
    indices = torch.arange(len(source))
    images, unreadable = source.read(indices, draw_crops(PRESETS["none"], indices), (24, 24))
    assert not unreadable
    return [number_of(image) for image in images]


def records_of(stream: ImageStream) -> Iterator[Record]:
    for piece in range(stream.pieces):
        for record in stream.records(piece):
            assert isinstance(record, Record), record
            yield record


def number_in(record: Record) -> int:
    assert isinstance(record.encoded, (bytes, str))
    return number_of(Image.open(io.BytesIO(record.encoded) if isinstance(record.encoded, bytes) else record.encoded))


def write_shards(folder: Path, count: int, per_shard: int, labeled: bool = True) -> Path:
    """Shards s-000.tar and following, by the webdataset library; the class of picture i is i % 3."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard, first in enumerate(range(0, count, per_shard)):
        with webdataset.TarWriter(str(folder / f"s-{shard:03}.tar")) as writer:
            for number in range(first, min(first + per_shard, count)):
                sample = {"__key__": f"{number:05}", "png": png(number)}
                writer.write(sample | ({"cls": number % 3} if labeled else {}))
    return folder
