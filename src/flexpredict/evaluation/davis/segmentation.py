"""Segments the objects of every video that has no masks yet, and scores the masks."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from flexpredict.errors import UserError
from flexpredict.evaluation.davis import DavisSettings, Propagation
from flexpredict.evaluation.davis.propagation import followed_masks
from flexpredict.evaluation.davis.scores import (
    SETTINGS,
    DavisResult,
    read_prediction,
    refuse_other_settings,
    score_videos,
)
from flexpredict.evaluation.davis.videos import Video, open_videos
from flexpredict.evaluation.dense.patches import encoded_size
from flexpredict.evaluation.index_masks import Mask, overlaid, write_mask
from flexpredict.features.encoding import patch_grid
from flexpredict.features.workspace import Workspace
from flexpredict.files import write_atomically, write_folder_atomically, write_json_atomically
from flexpredict.progress import Counting

_FILM_SIDE = 240  # at most, of the shorter side
_FRAMES_PER_SECOND = 12


def segment_videos(space: Workspace, asked: DavisSettings) -> DavisResult:
    """Follow the objects of every sequence with features of the last layer; see `evaluate_davis`."""
    if asked.overlays == "mp4" and shutil.which("ffmpeg") is None:
        raise UserError("overlays=mp4 needs the program ffmpeg, which is not installed. Use overlays=gif.")
    videos, out = open_videos(str(asked.data), asked.split, asked.year), asked.place
    encoder = space.encoder.to(space.fabric.device).eval()
    first_size = encoded_size(videos[0].size, asked.height, encoder.patch_size)
    patch_grid(encoder, first_size)
    settings: dict[str, Any] = {
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint(),
        "layers": 1,
        **{field.name: getattr(asked, field.name) for field in fields(Propagation)},
        "height": asked.height,
        "patch_size": list(encoder.patch_size),
        "data": str(asked.data),
        "split": asked.split,
        "year": asked.year,
    }
    if (out / "masks").exists() and not (out / SETTINGS).is_file():
        raise UserError(
            f"{out / 'masks'} exists, but not {out / SETTINGS}, which says how masks were made. Choose another out."
        )
    refuse_other_settings(out, settings)
    write_json_atomically(out / SETTINGS, settings)

    folders = {video.name: out / "masks" / video.name for video in videos}
    to_do = [
        video
        for video in videos
        if not all((folders[video.name] / f"{name}.png").is_file() for name in video.frame_names)
    ]
    total, left = (sum(len(video.frames) for video in some) for some in (videos, to_do))
    with Counting(space.console, "following objects", "frames", total, total - left) as counting:
        for video in to_do:
            masks = []
            for mask in followed_masks(encoder, video, asked.height, asked):
                masks.append(mask)
                counting.add(1, video.name)
            _write_masks(video, masks, folders[video.name])
    if asked.overlays != "none":
        films = {out / "overlays" / f"{video.name}.{asked.overlays}": video for video in videos}
        _write_films(films, folders, space.console)
    return score_videos(encoder.what, asked, settings, videos, out / "masks", space.console, encoder.unfinished)


def _write_masks(video: Video, masks: Sequence[Mask], folder: Path) -> None:
    def write(temporary: Path) -> None:
        for name, mask in zip(video.frame_names, masks, strict=True):
            write_mask(mask, temporary / f"{name}.png")

    folder.parent.mkdir(parents=True, exist_ok=True)
    write_folder_atomically(folder, write)


def _write_films(films: Mapping[Path, Video], folders: Mapping[str, Path], console: Console) -> None:
    """Write the films that do not exist yet."""
    missing = {path: video for path, video in films.items() if not path.is_file()}
    total = sum(len(video.frames) for video in missing.values())
    with Counting(console, "writing overlays", "frames", total) as counting:
        for path, video in missing.items():
            scale = min(1.0, _FILM_SIDE / min(video.size))
            size = height, width = round(video.size[0] * scale), round(video.size[1] * scale)
            numbers = range(len(video.frames))
            frames = (video.frame(number, size).permute(1, 2, 0).numpy() for number in numbers)
            masks = (
                np.array(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST))
                for mask in read_prediction(folders[video.name], video, numbers)
            )
            write_film(frames, masks, path)
            counting.add(len(video.frames), video.name)


def write_film(frames: Iterable[NDArray[np.uint8]], masks: Iterable[Mask], path: Path) -> None:
    """frames: T of H W 3, masks: T of H W. The suffix of the path is the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = (overlaid(frame, mask) for frame, mask in zip(frames, masks, strict=True))
    write = _write_gif if path.suffix == ".gif" else _write_mp4
    write_atomically(path, partial(write, pictures))


def _write_gif(pictures: Iterator[NDArray[np.uint8]], path: Path) -> None:
    first, *others = (Image.fromarray(picture) for picture in pictures)
    duration = round(1000 / _FRAMES_PER_SECOND)
    first.save(path, "GIF", save_all=True, append_images=others, duration=duration, loop=0)


def _write_mp4(pictures: Iterator[NDArray[np.uint8]], path: Path) -> None:
    first = next(pictures)
    height, width = first.shape[:2]
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {_FRAMES_PER_SECOND} -i -"
    # H.264 that every player takes has half the resolution in color, so sides must be even.
    target = "-vf crop=trunc(iw/2)*2:trunc(ih/2)*2 -pix_fmt yuv420p -f mp4"
    command = ["ffmpeg", "-loglevel", "error", "-y", *source.split(), *target.split(), str(path)]
    film = first.tobytes() + b"".join(picture.tobytes() for picture in pictures)
    done = subprocess.run(command, input=film, capture_output=True, check=False)
    if done.returncode:
        reason = " ".join(done.stderr.decode(errors="replace").split())[-400:]
        raise UserError(f"ffmpeg could not write {path.name}: {reason} Use overlays=gif.")
