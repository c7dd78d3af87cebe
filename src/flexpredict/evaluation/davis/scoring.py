"""Scores the masks of a split, and writes the tables."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.davis import DavisSettings
from flexpredict.evaluation.davis.scores import ObjectScores, by_sequence, score_sequence, summary
from flexpredict.evaluation.davis.videos import Video, open_videos
from flexpredict.evaluation.index_masks import VOID, Mask, read_mask, read_mask_size
from flexpredict.evaluation.results import Result, write_result
from flexpredict.files import write_text_atomically
from flexpredict.progress import Counting
from flexpredict.same_settings import read_settings, require_same_settings
from flexpredict.showing import numbers_table

SETTINGS = "settings.json"


class DavisResult(Result):
    """Shown as one line for each sequence."""

    def table(self) -> Table:
        rows = {
            **self.details["sequences"],
            f"{self.protocol['objects']} objects": self.numbers,
            "(not moved)": self.details["first masks, not moved"],
        }
        return numbers_table(
            {name: {column: f"{value:.1f}" for column, value in row.items()} for name, row in rows.items()}
        )


def score_masks(masks: Path, asked: DavisSettings, console: Console) -> DavisResult:
    """Score masks that another method made, masks/SEQUENCE/00000.png. The tables are the same as for our own."""
    videos = open_videos(str(asked.data), asked.split, asked.year, with_frames=False)
    check_predictions(masks, videos)
    settings = {"masks": str(masks), "data": str(asked.data), "split": asked.split, "year": asked.year}
    record_settings(Path(asked.out), settings)
    return score_videos(f"masks in {masks}", asked, settings, videos, masks, console)


def record_settings(out: Path, settings: dict[str, Any]) -> None:
    """Masks and scores of different settings are never mixed in one folder."""
    path = out / SETTINGS
    if path.is_file():
        remedy = "Choose another out, or delete that folder."
        require_same_settings(out, read_settings(path, remedy), settings, remedy)
        return
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(settings, indent=2) + "\n")


def score_videos(
    encoder: str,
    asked: DavisSettings,
    settings: dict[str, Any],
    videos: Sequence[Video],
    masks: Path,
    console: Console,
) -> DavisResult:
    """Score masks/SEQUENCE/00000.png, and write the tables.

    Args:
        encoder: what made the masks, in words.
        settings: how they were made; the title names those that are not the defaults.
    """
    data, out = str(asked.data), Path(asked.out)
    scores: list[ObjectScores] = []
    unmoved: list[ObjectScores] = []  # the score of doing nothing: the masks of the first frame in all others
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
    usual = {field.name: field.default for field in fields(asked) if field.default is not MISSING}
    unusual = [f"{name} {value}" for name, value in settings.items() if value != usual.get(name, value)]
    counts = {"sequences": len(videos), "objects": len(scores), "frames": frames}
    result = DavisResult(
        "davis",
        encoder,
        data,
        summary(scores),
        {**settings, "settings": ", ".join(unusual), **counts},
        {"objects": objects, "sequences": sequences, "first masks, not moved": summary(unmoved)},
        title=f"J and F on {data} (%)",
        files=[out / name for name in ("result.json", "scores.csv", "sequences.csv")],
    )
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(out / "scores.csv", _csv("object", objects))
    write_text_atomically(out / "sequences.csv", _csv("sequence", sequences))
    write_result(result, out / "result.json")
    return result


def _csv(what: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """In percent, with as many digits as the toolkit of the challenge gives."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([what, *next(iter(rows.values()))])
    writer.writerows([name, *(f"{value:.4f}" for value in row.values())] for name, row in rows.items())
    return text.getvalue()


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
