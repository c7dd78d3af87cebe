"""`evaluate davis`: follows the objects of every sequence, unless that was done before, and scores the masks."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from flexpredict.encoders.frozen import FrozenEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.davis import overlay
from flexpredict.evaluation.davis.following import check_encoder, encoded_size, followed_masks
from flexpredict.evaluation.davis.index_masks import Mask, write_mask
from flexpredict.evaluation.davis.predictions import check_predictions, read_prediction
from flexpredict.evaluation.davis.propagation import Propagation
from flexpredict.evaluation.davis.scores import ObjectScores, by_sequence, score_sequence, summary
from flexpredict.evaluation.davis.tree import open_tree
from flexpredict.evaluation.davis.videos import Video, open_scene_videos
from flexpredict.evaluation.results import Result, print_numbers, write_result
from flexpredict.files import write_folder_atomically, write_text_atomically
from flexpredict.progress import Counting
from flexpredict.same_settings import read_settings, require_same_settings

_FILM_SIDE = 240  # at most, of the shorter side


def evaluate_davis(
    encoder: FrozenEncoder,
    data: str | Path,
    out: Path,
    *,
    split: str = "val",
    year: str = "2017",
    queue: int = 7,
    radius: int = 12,
    top_k: int = 5,
    temperature: float = 0.1,
    height: int = 480,
    overlays: overlay.Format = "gif",
    device: str | torch.device = "cpu",
    console: Console | None = None,
) -> Result:
    """Follow the objects of every sequence with the features of the last layer, by the protocol of DINO.

    Frames keep their aspect: the shorter side becomes `height`, and both the nearest multiple of the patch size. In
    `out` are then masks/SEQUENCE/00000.png, overlays/SEQUENCE.gif, scores.csv, sequences.csv and result.json.
    Sequences whose masks are there already, made with the same settings, are not followed again.

    Args:
        data: a DAVIS folder, or `scenes:8,size=96,frames=16,seed=0`, the built-in videos.
        year: 2016 takes all objects of a sequence for one.
    """
    console = console or Console(soft_wrap=True)
    how = Propagation(queue, radius, top_k, temperature)
    overlay.check_format(overlays)
    if height < 1:
        raise UserError(f"height is {height}, but frames need a shorter side of some pixels, like 480.")
    videos = _open_videos(data, split, year)
    encoder = encoder.to(device).eval()
    check_encoder(encoder, encoded_size(videos[0].size, height, encoder.patch_size))
    settings = {
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint(),
        "layers": 1,
        **asdict(how),
        "height": height,
        "patch_size": list(encoder.patch_size),
        "data": str(data),
        "split": split,
        "year": year,
    }
    _keep_settings(out, settings)

    folders = {video.name: out / "masks" / video.name for video in videos}
    to_do = [video for video in videos if not _is_done(video, folders[video.name])]
    total, left = (sum(len(video.frames) for video in some) for some in (videos, to_do))
    with Counting(console, "following objects", "frames", total, total - left) as counting:
        for video in to_do:
            masks = []
            for mask in followed_masks(encoder, video, height, how):
                masks.append(mask)
                counting.add(1, video.name)
            _write_masks(video, masks, folders[video.name])
    if overlays != "none":
        _write_films({out / "overlays" / f"{video.name}.{overlays}": video for video in videos}, folders, console)
    usual = {**asdict(Propagation()), "height": 480, "split": "val", "year": "2017"}
    unusual = ", ".join(f"{name} {settings[name]}" for name, value in usual.items() if settings[name] != value)
    protocol = {**settings, "settings": unusual}
    return _scored(Result("davis", encoder.what, str(data), {}, protocol), videos, out / "masks", out, console)


def score_masks(
    masks: Path,
    data: str | Path,
    out: Path,
    *,
    split: str = "val",
    year: str = "2017",
    console: Console | None = None,
) -> Result:
    """Score masks that another method made, masks/SEQUENCE/00000.png. `out` gets the same tables as of our own."""
    console = console or Console(soft_wrap=True)
    videos = _open_videos(data, split, year, with_frames=False)
    check_predictions(masks, videos)
    settings = {"masks": str(masks), "split": split, "year": year}
    usual = {"split": "val", "year": "2017"}
    settings["settings"] = ", ".join(f"{name} {settings[name]}" for name in usual if settings[name] != usual[name])
    return _scored(Result("davis", f"masks in {masks}", str(data), {}, settings), videos, masks, out, console)


def _open_videos(data: str | Path, split: str, year: str, with_frames: bool = True) -> list[Video]:
    if isinstance(data, str) and data.partition(":")[0] == "scenes":
        return open_scene_videos(data)
    return open_tree(Path(data).expanduser(), split, year, with_frames)


def _keep_settings(out: Path, settings: dict[str, Any]) -> None:
    """Masks of different settings never meet in one folder."""
    path = out / "settings.json"
    if path.is_file():
        remedy = "Give another out, or delete that folder."
        require_same_settings(out, read_settings(path, remedy), settings, remedy)
        return
    if (out / "masks").exists():
        raise UserError(
            f"{out / 'masks'} exists, but not the settings.json that would tell how its masks were made. "
            "Give another --out."
        )
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(settings, indent=2) + "\n")


def _is_done(video: Video, folder: Path) -> bool:
    return all((folder / f"{name}.png").is_file() for name in video.frame_names)


def _write_masks(video: Video, masks: Sequence[Mask], folder: Path) -> None:
    def write(temporary: Path) -> None:
        for name, mask in zip(video.frame_names, masks, strict=True):
            write_mask(mask, temporary / f"{name}.png")

    folder.parent.mkdir(parents=True, exist_ok=True)
    write_folder_atomically(folder, write)


def _write_films(films: Mapping[Path, Video], folders: Mapping[str, Path], console: Console) -> None:
    """Those that are not there yet."""
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
            overlay.write_film(frames, masks, path)
            counting.add(len(video.frames), video.name)


def _scored(result: Result, videos: Sequence[Video], masks: Path, out: Path, console: Console) -> Result:
    """Fill in the numbers, write and print them."""
    scores: list[ObjectScores] = []
    unmoved: list[ObjectScores] = []  # what doing nothing is worth: the masks of the first frame, in all others
    frames = sum(len(video.masks) for video in videos)
    with Counting(console, "scoring", "frames", frames) as counting:
        for video in videos:
            counted = range(1, len(video.masks) - 1)
            truth = np.stack([video.mask(number) for number in counted])
            predicted = np.stack(list(read_prediction(masks / video.name, video, counted)))
            scores += score_sequence(video.name, truth, predicted, video.objects)
            first = np.broadcast_to(video.mask(0), truth.shape)
            unmoved += score_sequence(video.name, truth, first, video.objects)
            counting.add(len(video.masks), video.name)
    objects = {f"{score.sequence}_{score.number}": summary([score]) for score in scores}
    sequences = {name: summary(members) for name, members in by_sequence(scores).items()}
    result.numbers = summary(scores)
    result.protocol |= {"sequences": len(videos), "objects": len(scores), "frames": frames}
    result.details = {"objects": objects, "sequences": sequences, "first masks, not moved": summary(unmoved)}
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(out / "scores.csv", _csv("object", objects))
    write_text_atomically(out / "sequences.csv", _csv("sequence", sequences))
    write_result(result, out / "result.json")
    rows = {**sequences, f"{len(scores)} objects": result.numbers, "(not moved)": summary(unmoved)}
    printed = {name: {column: f"{value:.1f}" for column, value in row.items()} for name, row in rows.items()}
    print_numbers(console, f"{result.encoder} on {result.data}, per cent", printed)
    return result


def _csv(what: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """In per cent, with as many digits as the toolkit of the challenge gives."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([what, *next(iter(rows.values()))])
    writer.writerows([name, *(f"{value:.4f}" for value in row.values())] for name, row in rows.items())
    return text.getvalue()
