"""Scores the masks of a split, and writes the tables."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from flexpredict.evaluation.davis.predictions import check_predictions, read_prediction
from flexpredict.evaluation.davis.scores import ObjectScores, by_sequence, score_sequence, summary
from flexpredict.evaluation.davis.tree import open_videos
from flexpredict.evaluation.davis.videos import Video
from flexpredict.evaluation.result_files import write_result
from flexpredict.evaluation.results import Result
from flexpredict.files import write_text_atomically
from flexpredict.progress import Counting
from flexpredict.showing import numbers_table

USUAL_SPLIT = {"split": "val", "year": "2017"}


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


def score_masks(masks: Path, data: str, out: Path, *, split: str, year: str, console: Console) -> DavisResult:
    """Score masks that another method made, masks/SEQUENCE/00000.png. `out` gets the same tables as for our own."""
    videos = open_videos(data, split, year, with_frames=False)
    check_predictions(masks, videos)
    settings = {"masks": str(masks), "split": split, "year": year}
    return score_videos(f"masks in {masks}", data, settings, USUAL_SPLIT, videos, masks, out, console)


def score_videos(
    encoder: str,
    data: str,
    settings: dict[str, Any],
    usual: Mapping[str, Any],
    videos: Sequence[Video],
    masks: Path,
    out: Path,
    console: Console,
) -> DavisResult:
    """Score masks/SEQUENCE/00000.png, and write the tables into `out`.

    Args:
        encoder: what made the masks, in words.
        settings: how they were made; the title names those that differ from `usual`.
    """
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
    unusual = ", ".join(f"{name} {settings[name]}" for name, value in usual.items() if settings[name] != value)
    counts = {"sequences": len(videos), "objects": len(scores), "frames": frames}
    result = DavisResult(
        "davis",
        encoder,
        data,
        summary(scores),
        {**settings, "settings": unusual, **counts},
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
