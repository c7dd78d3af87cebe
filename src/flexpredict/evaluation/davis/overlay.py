"""A film of a video with its masks drawn over it, as an animated GIF or, with ffmpeg, as MP4."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flexpredict.errors import UserError
from flexpredict.evaluation.index_masks import Mask, overlaid
from flexpredict.files import write_atomically

_FRAMES_PER_SECOND = 12


def check_format(overlays: str) -> None:
    """Refuse, before any work, a format that could not be written after it."""
    if overlays == "mp4" and shutil.which("ffmpeg") is None:
        raise UserError("overlays=mp4 needs the program ffmpeg, which is not installed. Use overlays=gif.")


def write_film(frames: Iterable[NDArray[np.uint8]], masks: Iterable[Mask], path: Path) -> None:
    """frames: T of H W 3, masks: T of H W. The name of the path ends with the format."""
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
