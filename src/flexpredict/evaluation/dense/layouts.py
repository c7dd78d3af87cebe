"""Opens images with index masks: Pascal VOC, ADE20K, Cityscapes, two folders, or the built-in scenes."""

import csv
from collections.abc import Iterable
from pathlib import Path

from flexpredict.data.scenes.scenes import CLASSES, SceneBatch
from flexpredict.data.sources.derived import split_part
from flexpredict.errors import UserError, did_you_mean
from flexpredict.evaluation.dense.classes import BACKGROUND, MaskedImages, MaskLabels
from flexpredict.evaluation.dense.images import (
    MappedImages,
    Role,
    folders_with_maps,
    listed_files,
    paired,
    scenes_with_maps,
)
from flexpredict.evaluation.index_masks import read_mask
from flexpredict.named_options import split_options

_WHAT = "mask"
_VOC = (
    *(BACKGROUND, "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
# The evaluated classes of Cityscapes, by their number in labelIds; labelTrainIds counts them from 0.
_CITYSCAPES = {
    7: "road",
    8: "sidewalk",
    11: "building",
    12: "wall",
    13: "fence",
    17: "pole",
    19: "traffic light",
    20: "traffic sign",
    21: "vegetation",
    22: "terrain",
    23: "sky",
    24: "person",
    25: "rider",
    26: "car",
    27: "truck",
    28: "bus",
    31: "train",
    32: "motorcycle",
    33: "bicycle",
}
_ADE_CLASSES = 150
_USUAL: dict[Role, str] = {"train": "train", "test": "val"}
_WAYS = (
    "the folder of Pascal VOC (VOCdevkit/VOC2012), ADE20K (ADEChallengeData2016) or Cityscapes; IMAGES,masks=FOLDER "
    "for two folders with files of the same names; or scenes"
)


def open_masked_images(data: str, role: Role) -> tuple[MaskedImages, MaskLabels]:
    """Images with masks, and what the numbers in the masks stand for.

    A data set with several splits takes the usual one of this role, unless `,split=NAME` is given; `,part=0-0.1`
    takes a part of the images.
    """
    name, part = split_part(data)
    if name.partition(":")[0] == "scenes":
        images = scenes_with_maps(name, role, SceneBatch.class_masks, _WHAT)
        labels = MaskLabels(dict(enumerate((BACKGROUND, *CLASSES))), frozenset())
    else:
        images, labels = _open_folder(name, role)
    return images.part(part), labels


def _open_folder(name: str, role: Role) -> tuple[MaskedImages, MaskLabels]:
    path, options = split_options(name, ("masks", "split"))
    root, split = Path(path).expanduser(), options.get("split")
    if "masks" in options:
        if split is not None:
            raise UserError(f"split={split} in {name} is not used with two folders. Name the folders of the split.")
        masks = Path(options["masks"]).expanduser()
        return folders_with_maps(root, masks, (".png",), read_mask, _WHAT), MaskLabels()
    if not root.is_dir():
        raise UserError(f"There is no folder '{path}' (looked for in {Path.cwd()}). Give {_WAYS}.")
    for needed, opener in _LAYOUTS.items():
        if all((root / folder).is_dir() for folder in needed):
            return opener(root, role, split)
    nested = [
        str(folder)
        for folder in sorted(root.iterdir())
        if any(all((folder / inner).is_dir() for inner in needed) for needed in _LAYOUTS)
    ]
    hint = f" Did you mean {nested[0]}?" if nested else ""
    raise UserError(f"{path} has no masks in a known layout.{hint} Give {_WAYS}.")


def _voc(root: Path, role: Role, split: str | None) -> tuple[MaskedImages, MaskLabels]:
    lists = root / "ImageSets" / "Segmentation"
    chosen = _split(split or _USUAL[role], (file.stem for file in lists.glob("*.txt")), lists)
    words = (lists / f"{chosen}.txt").read_text(encoding="utf-8").split()
    if not words:
        raise UserError(f"{lists / chosen}.txt names no image. Choose another split with ,split=NAME.")
    source = listed_files(root / "JPEGImages", [f"{word}.jpg" for word in words])
    masks = paired(source, [[root / "SegmentationClass" / f"{word}.png"] for word in words], _WHAT)
    return MappedImages(f"{root}, {chosen}", source, masks, read_mask, _WHAT), MaskLabels(dict(enumerate(_VOC)))


def _ade20k(root: Path, role: Role, split: str | None) -> tuple[MaskedImages, MaskLabels]:
    """Number 0 is void, and classes count from 1."""
    annotations = root / "annotations"
    usual = {"train": "training", "test": "validation"}[role]
    chosen = _split(split or usual, (folder.name for folder in annotations.iterdir()), annotations)
    images = folders_with_maps(root / "images" / chosen, annotations / chosen, (".png",), read_mask, _WHAT)
    return images, MaskLabels(_ade_names(root / "objectInfo150.txt"), frozenset({0}))


def _ade_names(path: Path) -> dict[int, str]:
    """Names from the file that comes with the data; without it, classes are called by their numbers."""
    names = {number: f"class {number}" for number in range(1, _ADE_CLASSES + 1)}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        names |= {int(row["Idx"]): row["Name"].strip() for row in rows if {"Idx", "Name"} <= row.keys()}
    return names


def _cityscapes(root: Path, role: Role, split: str | None) -> tuple[MaskedImages, MaskLabels]:
    chosen = _split(split or _USUAL[role], (folder.name for folder in (root / "gtFine").iterdir()), root / "gtFine")
    folder, masks = root / "leftImg8bit" / chosen, root / "gtFine" / chosen
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*_leftImg8bit.png"))
    if not names:
        raise UserError(f"There is no image CITY/…_leftImg8bit.png in {folder}. Unpack leftImg8bit there.")
    kind = "labelTrainIds" if any(masks.glob("*/*_gtFine_labelTrainIds.png")) else "labelIds"
    source, ending = listed_files(folder, names), f"_gtFine_{kind}.png"
    files = paired(source, [[masks / name.replace("_leftImg8bit.png", ending)] for name in names], _WHAT)
    images = MappedImages(str(folder), source, files, read_mask, _WHAT)
    if kind == "labelTrainIds":
        return images, MaskLabels(dict(enumerate(_CITYSCAPES.values())))
    return images, MaskLabels(_CITYSCAPES, others_are_void=True)


def _split(wanted: str, found: Iterable[str], folder: Path) -> str:
    known = sorted(found)
    if wanted not in known:
        there_are = f"{did_you_mean(wanted, known)} There are: {', '.join(known)}." if known else ""
        raise UserError(f"There is no split '{wanted}' in {folder}.{there_are} Choose one with ,split=NAME.")
    return wanted


_LAYOUTS = {
    ("JPEGImages", "SegmentationClass", "ImageSets"): _voc,
    ("images", "annotations"): _ade20k,
    ("leftImg8bit", "gtFine"): _cityscapes,
}
