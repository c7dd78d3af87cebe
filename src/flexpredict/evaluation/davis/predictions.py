"""Predicted masks in the layout of the challenge, FOLDER/SEQUENCE/00000.png."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.davis.videos import Video
from flexpredict.evaluation.index_masks import VOID, Mask, read_mask, read_mask_size


def check_predictions(folder: Path, videos: Sequence[Video]) -> None:
    """Refuse a folder that lacks masks or has masks of another size, before any is scored."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. Give the one that holds a folder of masks for each sequence.")
    absent = [video.name for video in videos if not (folder / video.name).is_dir()]
    if absent:
        raise UserError(
            f"{folder} lacks {len(absent)} of {len(videos)} sequences: {some_of(absent)}. Masks are looked for in "
            f"{folder / absent[0]}/{videos[0].frame_names[0]}.png and so on."
        )
    for video in videos:
        # The first mask is given and the last is not scored, so these two need not exist.
        paths = [folder / video.name / f"{name}.png" for name in video.frame_names[1:-1]]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise UserError(
                f"{folder / video.name} lacks {len(missing)} of the {len(paths)} masks that are scored: "
                f"{some_of(missing)}. Make them again, named like the frames."
            )
        for path in paths:
            size = read_mask_size(path)
            if size != video.size:
                raise UserError(
                    f"{path} has {size[0]}x{size[1]} pixels (height x width), but the frames of {video.name} have "
                    f"{video.size[0]}x{video.size[1]}. Write masks at the size of the frames."
                )


def read_prediction(folder: Path, video: Video, frames: Iterable[int]) -> Iterator[Mask]:
    """The masks of these frames; void pixels count as background."""
    known = np.zeros(256, bool)
    known[[0, *video.objects]] = True
    for frame in frames:
        path = folder / f"{video.frame_names[frame]}.png"
        mask = read_mask(path)
        mask = np.minimum(mask, 1) if video.foreground_only else np.where(mask == VOID, np.uint8(0), mask)
        if not known[mask].all():
            objects = ", ".join(map(str, video.objects))
            raise UserError(
                f"{path} names the object {mask[~known[mask]].min()}, but the first true mask of {video.name} has "
                f"only {objects}. Number objects as that one does; 0 is background."
            )
        yield mask
