"""Opens a DAVIS tree: JPEGImages/480p/NAME/00000.jpg, Annotations/480p/NAME/00000.png, ImageSets/2017/val.txt.

Everything that could fail later is checked first, down to the headers of all images and masks.
"""

from pathlib import Path

from flexpredict.data.decoding import UnreadableImage, read_size
from flexpredict.errors import UserError, did_you_mean, some_of
from flexpredict.evaluation.davis.videos import FEWEST_FRAMES, Video, objects_of, open_scene_videos
from flexpredict.evaluation.index_masks import read_mask_size

_RESOLUTION = "480p"


def open_videos(data: str, split: str, year: str, with_frames: bool = True) -> list[Video]:
    """The videos of a DAVIS folder, or of the built-in scenes."""
    if data.partition(":")[0] == "scenes":
        return open_scene_videos(data)
    return open_tree(Path(data).expanduser(), split, year, with_frames)


def open_tree(root: Path, split: str, year: str, with_frames: bool = True) -> list[Video]:
    """The sequences of a split, in the order of its list. with_frames: whether frames are needed besides masks."""
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
