"""Images with a map each, a number for every pixel: classes or depths. Opened by name and checked before any work."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from flexpredict.cores import cores
from flexpredict.data.decoding import UnreadableImage, read_size, upright
from flexpredict.data.scenes.scenes import IMAGE_OPTIONS, SceneBatch, SceneOptions, draw_scenes, read_options
from flexpredict.data.sources.derived import Part, named_part, part_of
from flexpredict.data.sources.folders import FolderSource, open_folder
from flexpredict.data.sources.image_source import ArraySource, ImageSource, evenly_spaced
from flexpredict.data.sources.listing import Names
from flexpredict.errors import UserError, some_of
from flexpredict.files import write_atomically
from flexpredict.progress import Counting
from flexpredict.sizes import Size

Role: TypeAlias = Literal["train", "test"]
Pixels: TypeAlias = NDArray[np.uint8]  # H W 3
Number = TypeVar("Number", np.uint8, np.float32)

_SCENES = 2000
_READ_AHEAD = 64  # maps
_SIDE, _GAP = 240, 4  # pixels of pictures: the shorter side, and between two


@dataclass(frozen=True, eq=False)
class MappedImages(Generic[Number]):
    """Images, and for each a map of its height and width."""

    name: str
    source: ImageSource
    maps: Sequence[Path] | NDArray[Number]  # of each image: a file, or N H W
    read_file: Callable[[Path], NDArray[Number]] | None  # None if there are no files
    what: str  # "mask" or "depth map", for messages

    def __len__(self) -> int:
        return len(self.source)

    def map(self, index: int) -> NDArray[Number]:
        """H W."""
        found: Any = self.maps[index]
        return self.read_file(found) if self.read_file is not None else found

    def describe_map(self, index: int) -> str:
        found = self.maps[index]
        return str(found) if isinstance(found, Path) else f"the {self.what} of {self.source.describe(index)}"

    def part(self, part: Part | None) -> "MappedImages[Number]":
        """The images that `,part=0-0.1` stands for; all for None."""
        if part is None:
            return self
        chosen = part_of(self.source, part)
        maps: Any = [self.maps[index] for index in chosen.indices.tolist()]
        return replace(self, name=named_part(self.name, part), source=chosen, maps=maps)

    def checked_maps(self, console: Console) -> Iterator[tuple[Size, NDArray[Number]]]:
        """Size and map of every image, in order. Files that are missing, broken or of another size are refused."""
        label = f"{self.what}s of {self.name}"
        with Counting(console, label, f"{self.what}s", len(self)) as counting, ThreadPoolExecutor(cores()) as pool:
            for start in range(0, len(self), _READ_AHEAD):
                some = range(start, min(start + _READ_AHEAD, len(self)))
                yield from pool.map(self._checked_map, some)
                counting.add(len(some))

    def _checked_map(self, index: int) -> tuple[Size, NDArray[Number]]:
        found = self.map(index)
        try:
            size = read_size(self.source.encoded(index), self.source.describe(index))
        except UnreadableImage as error:
            raise UserError(f"The image {error}. Copy it again, or remove it and its {self.what}.") from error
        if found.shape != size:
            raise UserError(
                f"{self.describe_map(index)} has {found.shape[0]}x{found.shape[1]} pixels (height x width), but its "
                f"image {self.source.describe(index)} has {size[0]}x{size[1]}. Give {self.what}s of the size of the "
                "images."
            )
        return size, found


def scenes_with_maps(
    data: str, role: Role, maps_of: Callable[[SceneBatch], NDArray[Number]], what: str
) -> MappedImages[Number]:
    """The built-in scenes: `scenes`, or `scenes:500,size=64,split=test`. Tests are on their test split by default."""
    asked = read_options(data, SceneOptions(count=_SCENES, split=role), IMAGE_OPTIONS)
    chosen = asked.first + np.arange(asked.count)
    drawn = draw_scenes(chosen, size=asked.size, seed=asked.seed, split=asked.split, where=asked.where)
    name = data if asked.split == "train" or "split=" in data else f"{data} ({asked.split})"
    source = ArraySource(name, torch.from_numpy(drawn.images))
    return MappedImages(name, source, maps_of(drawn), None, what)


def folders_with_maps(
    images: Path, maps: Path, suffixes: Sequence[str], read_file: Callable[[Path], NDArray[Number]], what: str
) -> MappedImages[Number]:
    """Two folders with files of the same names, apart from their suffixes."""
    for folder in (images, maps):
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder} (looked for in {Path.cwd()}). Check its name.")
    source = open_folder(images, lambda found: None)
    names = [source.names[index] for index in range(len(source))]
    candidates = [[maps / Path(name).with_suffix(end) for end in suffixes] for name in names]
    return MappedImages(str(images), source, paired(source, candidates, what), read_file, what)


def listed_files(folder: Path, names: Sequence[str]) -> FolderSource:
    """These image files of a folder, in this order."""
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise UserError(
            f"{len(absent)} of the {len(names)} images that are listed are not in {folder}: {some_of(absent)}. "
            "Complete the download, or take them off the list."
        )
    return FolderSource(name=str(folder), names=Names.of(map(str.encode, names)))


def paired(source: FolderSource, candidates: Sequence[Sequence[Path]], what: str) -> list[Path]:
    """The map of each image: the first of its candidates that is a file."""
    found = [next(filter(Path.is_file, paths), None) for paths in candidates]
    absent = [index for index, path in enumerate(found) if path is None]
    if absent:
        needed = " or ".join(map(str, candidates[absent[0]]))
        raise UserError(
            f"{len(absent)} of the {len(source)} images of {source.name} have no {what}: "
            f"{some_of([source.names[index] for index in absent])}. The first needs {needed}."
        )
    return [path for path in found if path is not None]


class Gallery:
    """Pictures of some evenly spaced images, each beside its true and its predicted map."""

    def __init__(self, images: MappedImages[Number], most: int, paint: Callable[[Pixels, Any], Pixels]) -> None:
        """paint: draws a map (H W, made to fit) over or in place of an image (H W 3)."""
        self._source, self._paint = images.source, paint
        self._shown = set(evenly_spaced(len(images), most)) if most else set()
        self.pictures: dict[str, Pixels] = {}  # by the names of their images

    def add(self, index: int, truth: NDArray[Number], predicted: NDArray[Number]) -> None:
        if index not in self._shown:
            return
        name = self._source.describe(index)
        image = upright(self._source.encoded(index), name)
        size = round(image.width * _SIDE / min(image.size)), round(image.height * _SIDE / min(image.size))
        frame = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
        gap = np.full((size[1], _GAP, 3), 255, np.uint8)
        panels = [frame]
        for pixels in (truth, predicted):
            fitted = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST))
            panels += [gap, self._paint(frame, fitted)]
        self.pictures[name] = np.concatenate(panels, axis=1)

    def write(self, folder: Path) -> None:
        """Write each picture as a PNG named after its image."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, pixels in self.pictures.items():
            path = folder / f"{re.sub(r'[^0-9A-Za-z_]+', '-', Path(name).stem).strip('-')}.png"
            write_atomically(path, partial(Image.fromarray(pixels).save, format="PNG"))
