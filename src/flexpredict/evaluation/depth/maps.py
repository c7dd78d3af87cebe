"""Opens images with depth maps: two folders, or the built-in scenes."""

from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flexpredict.data.scenes.scenes import SceneBatch
from flexpredict.data.sources.derived import split_part
from flexpredict.errors import UserError, in_a_line
from flexpredict.evaluation.dense.images import MappedImages, Role, folders_with_maps, scenes_with_maps
from flexpredict.evaluation.depth import DepthSettings
from flexpredict.named_options import split_options

Depths: TypeAlias = NDArray[np.float32]  # H W, in meters; 0 where it is not known
DepthImages: TypeAlias = MappedImages[np.float32]

_WHAT = "depth map"


def open_depth_images(data: str, role: Role, how: DepthSettings) -> DepthImages:
    """`IMAGES,depth=FOLDER`, whose files are 16-bit PNG or .npy with the names of the images; or `scenes:500`."""
    name, part = split_part(data)
    if name.partition(":")[0] == "scenes":
        return scenes_with_maps(name, role, partial(_near_depths, how.max_depth), _WHAT).part(part)
    path, options = split_options(name, ("depth",))
    if "depth" not in options:
        raise UserError(f"{data} names no depth maps. Write IMAGES,depth=FOLDER, or use scenes.")
    read = partial(read_depths, scale=how.scale, max_depth=how.max_depth)
    maps = Path(options["depth"]).expanduser()
    return folders_with_maps(Path(path).expanduser(), maps, (".png", ".npy"), read, _WHAT).part(part)


def read_depths(path: Path, scale: float, max_depth: float | None) -> Depths:
    """A PNG of 16 bits holds meters times `scale`, a .npy meters. Not finite, negative or too far is not known."""
    try:
        depths = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _read_png(path, scale)
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"The depth map {path} cannot be read: {in_a_line(error)}. Copy or make it again.") from error
    depths = depths.squeeze()
    if depths.ndim != 2 or depths.dtype.kind not in "fiu":
        raise UserError(f"{path} holds {depths.dtype} {depths.shape}, but a depth map is a number for each pixel.")
    return _known(depths.astype(np.float32), max_depth)


def _read_png(path: Path, scale: float) -> Depths:
    with Image.open(path) as image:
        if not image.mode.startswith("I"):
            raise UserError(
                f"{path} is an image of mode {image.mode}, not a depth map, which is a grayscale PNG of 16 bits or a "
                ".npy file. Use the depth maps as they were published, not converted."
            )
        return (np.asarray(image).astype(np.float64) / scale).astype(np.float32)


def _near_depths(max_depth: float | None, scenes: SceneBatch) -> Depths:
    return _known(scenes.depth_maps(), max_depth)


def _known(depths: Depths, max_depth: float | None) -> Depths:
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(depths) & (depths > 0) & (depths <= (np.inf if max_depth is None else max_depth))
    return np.where(usable, depths, np.float32(0))
