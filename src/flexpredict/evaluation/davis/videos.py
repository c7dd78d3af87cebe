"""Videos with an index mask for every frame: those of a DAVIS tree, or moving built-in scenes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from flexpredict.data.decoding import Encoded, UnreadableImage, decode, read_size
from flexpredict.data.scenes.scenes import SceneOptions, draw_videos, read_options
from flexpredict.errors import UserError, did_you_mean, some_of
from flexpredict.evaluation.index_masks import VOID, Mask, read_mask, read_mask_size

_RESOLUTION = "480p"
_SCENES = SceneOptions(count=8, size=96, frames=16)
FEWEST_FRAMES = 3  # the first and the last are not scored
_MOST_OBJECTS = 100  # a mask with more numbers is a grayscale picture


@dataclass(frozen=True)
class Video:
    """T frames of H x W pixels."""

    name: str
    size: tuple[int, int]  # H W
    frame_names: Sequence[str]  # T: "00000", "00001" ...
    frames: Sequence[Encoded]  # T; empty if only masks are needed
    masks: Sequence[Path | Mask]  # T
    objects: tuple[int, ...]  # numbers of the objects in the first mask
    foreground_only: bool = False  # all objects are one, as in DAVIS 2016

    def frame(self, number: int, size: tuple[int, int]) -> Tensor:
        """3 H W uint8, resized to this height and width."""
        try:
            return decode(
                self.frames[number], self.describe(number), size, lambda height, width: (0, 0, width, height)
            )
        except UnreadableImage as error:
            raise UserError(f"A frame of sequence {self.name} cannot be read: {error}. Copy it again.") from error

    def describe(self, number: int) -> str:
        encoded = self.frames[number]
        return encoded if isinstance(encoded, str) else f"{self.name}, frame {self.frame_names[number]}"

    def mask(self, number: int) -> Mask:
        return _loaded(self.masks[number], self.foreground_only)


def _scene_videos(data: str) -> list[Video]:
    """data: `scenes`, or `scenes:8,size=96,frames=16,seed=0,where=0.5`."""
    known = ("count", "size", "frames", "seed", "where")
    asked = read_options(data, _SCENES, known, fewest_frames=FEWEST_FRAMES)
    drawn = draw_videos(
        np.arange(asked.count), frames=asked.frames, size=asked.size, seed=asked.seed, where=asked.where
    )
    names = [f"{frame:05d}" for frame in range(asked.frames)]
    size = (asked.size, asked.size)
    return [
        Video(f"scene-{number:03d}", size, names, list(images), list(masks), objects_of(masks[0], f"scene {number}"))
        for number, (images, masks) in enumerate(zip(drawn.images, drawn.masks, strict=True))
    ]


def objects_of(first_mask: Path | Mask, name: str, foreground_only: bool = False) -> tuple[int, ...]:
    """Numbers of the objects to follow. name: of the mask, for messages."""
    numbers = np.unique(_loaded(first_mask, foreground_only)).tolist()
    objects = tuple(number for number in numbers if number not in (0, VOID))
    if not objects:
        hint = " It holds only 0 and 255, as in DAVIS 2016: use year=2016." if VOID in numbers else ""
        raise UserError(f"There is no object in the first mask of {name}, so there is nothing to follow.{hint}")
    if len(objects) > _MOST_OBJECTS:
        raise UserError(
            f"The first mask of {name} holds {len(objects)} different numbers, so it is a grayscale picture rather "
            "than a mask that numbers objects. Use the masks as they were published, not converted."
        )
    return objects


def _loaded(mask: Path | Mask, foreground_only: bool) -> Mask:
    numbers = read_mask(mask) if isinstance(mask, Path) else mask
    return np.minimum(numbers, 1) if foreground_only else numbers


def open_videos(data: str, split: str, year: str, with_frames: bool = True) -> list[Video]:
    """The sequences of a split of a DAVIS folder, in the order of its list; or built-in scenes.

    with_frames: whether frames are needed besides masks.
    """
    if data.partition(":")[0] == "scenes":
        return _scene_videos(data)
    root = Path(data).expanduser()
    if not root.is_dir():
        raise UserError(
            f"There is no folder {root}. Give the DAVIS folder, which has a folder Annotations, or scenes."
        )
    masks, images = root / "Annotations" / _RESOLUTION, root / "JPEGImages" / _RESOLUTION
    lacking = [folder for folder in (masks, images)[: 1 + with_frames] if not folder.is_dir()]
    if lacking:
        below = [entry.name for entry in root.iterdir() if (entry / "Annotations").is_dir()]
        hint = f" There is one in {root / below[0]}." if below else ""
        missing = some_of([folder.relative_to(root) for folder in lacking])
        raise UserError(f"{root} is not a DAVIS folder: it lacks {missing}.{hint}")
    names = _listed(root / "ImageSets" / year, split)
    for folder in (masks, images)[: 1 + with_frames]:
        absent = [name for name in names if not (folder / name).is_dir()]
        if absent:
            raise UserError(
                f"{len(absent)} of the {len(names)} sequences of ImageSets/{year}/{split}.txt are not in {folder}: "
                f"{some_of(absent)}. Complete the download, or take them off the list."
            )
    return [_open(name, masks / name, images / name if with_frames else None, year == "2016") for name in names]


def _listed(folder: Path, split: str) -> list[str]:
    path = folder / f"{split}.txt"
    if not path.is_file():
        splits = sorted(file.stem for file in folder.glob("*.txt"))
        known = f"{did_you_mean(split, splits)} There are: {', '.join(splits)}." if splits else ""
        years = sorted(entry.name for entry in folder.parent.glob("*") if entry.is_dir())
        known = known or (f" There are lists of: {', '.join(years)}." if years else "")
        raise UserError(f"{path} is missing. It lists the sequences of the split '{split}'.{known}")
    names = list(dict.fromkeys(path.read_text(encoding="utf-8").split()))
    if not names:
        raise UserError(f"{path} lists no sequence. Write one name into each line.")
    return names


def _open(name: str, mask_folder: Path, image_folder: Path | None, foreground_only: bool) -> Video:
    masks = {path.stem: path for path in sorted(mask_folder.glob("*.png"))}
    images = {path.stem: path for path in sorted(image_folder.glob("*.jpg"))} if image_folder else None
    if images is not None and images.keys() != masks.keys():
        without, surplus = sorted(images.keys() - masks.keys()), sorted(masks.keys() - images.keys())
        faults = [f"{len(without)} frames have no mask ({some_of(without)})"] if without else []
        faults += [f"{len(surplus)} masks have no frame ({some_of(surplus)})"] if surplus else []
        raise UserError(
            f"In sequence {name}, {' and '.join(faults)}. Each {image_folder}/NAME.jpg needs {mask_folder}/NAME.png; "
            "splits whose masks are not public (test-dev, test-challenge) cannot be scored."
        )
    if len(masks) < FEWEST_FRAMES:
        raise UserError(
            f"Sequence {name} has {len(masks)} masks in {mask_folder}, but at least {FEWEST_FRAMES} are needed: the "
            "first and the last are not scored."
        )
    sizes = {path: read_mask_size(path) for path in masks.values()}
    try:
        sizes |= {path: read_size(str(path), str(path)) for path in (images or {}).values()}
    except UnreadableImage as error:
        raise UserError(f"A frame of sequence {name} cannot be read: {error}. Copy it again.") from error
    (first, size), *others = sizes.items()
    for path, other in others:
        if other != size:
            raise UserError(
                f"{path} has {other[0]}x{other[1]} pixels (height x width), but {first} has {size[0]}x{size[1]}: all "
                "frames and masks of a sequence must be of one size."
            )
    return Video(
        name=name,
        size=size,
        frame_names=tuple(masks),
        frames=[str(path) for path in (images or {}).values()],
        masks=list(masks.values()),
        objects=objects_of(first, f"sequence {name} ({first})", foreground_only),
        foreground_only=foreground_only,
    )
