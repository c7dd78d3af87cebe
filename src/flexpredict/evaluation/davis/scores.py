"""Scores of masks as the DAVIS challenge defines them: J and F of objects, sequences and splits, and their tables."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from flexpredict.errors import UserError, some_of
from flexpredict.evaluation.davis import DavisSettings
from flexpredict.evaluation.davis.videos import Video, open_videos
from flexpredict.evaluation.index_masks import VOID, Mask, read_mask, read_mask_size
from flexpredict.evaluation.results import Result, write_result
from flexpredict.files import write_csv_atomically, write_json_atomically
from flexpredict.progress import Counting
from flexpredict.same_settings import read_settings, require_same_settings
from flexpredict.showing import numbers_table

Positions = NDArray[np.int64]
_BINS = 4  # in time
_TOLERANCE = 0.008  # of the diagonal


@dataclass(frozen=True)
class ObjectScores:
    """J and F of one object in every frame that is scored."""

    sequence: str
    number: int
    region: NDArray[np.float64]  # T
    contour: NDArray[np.float64]  # T


def score_sequence(name: str, truth: Mask, predicted: Mask, objects: Sequence[int]) -> list[ObjectScores]:
    """truth, predicted: T H W, of all frames but the first and the last, as in the challenge.

    Pixels that are void in the truth belong to no object in either.
    """
    void = truth == VOID
    if void.any():
        truth, predicted = np.where(void, 0, truth), np.where(void, 0, predicted)
    region, contour = (measure(truth, predicted, objects) for measure in (region_similarity, contour_accuracy))
    return [ObjectScores(name, number, j, f) for number, j, f in zip(objects, region, contour, strict=True)]


def summary(scores: Sequence[ObjectScores]) -> dict[str, float]:
    """Percentages, means over objects: each counts the same, however long its sequence is."""
    region = np.mean([statistics(score.region) for score in scores], axis=0)
    contour = np.mean([statistics(score.contour) for score in scores], axis=0)
    names = [f"{measure} {statistic}" for measure in "JF" for statistic in ("mean", "recall", "decay")]
    both = {"J&F": (region[0] + contour[0]) / 2, **dict(zip(names, (*region, *contour), strict=True))}
    return {name: 100 * float(value) for name, value in both.items()}


def statistics(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean over frames, share of frames above 0.5 (recall), and loss from the first quarter to the last (decay)."""
    # As in the challenge, neighboring bins share the frame on their border, and halves are rounded up.
    borders = np.round(np.linspace(0, len(values) - 1, _BINS + 1) + 1e-10).astype(int)
    first, last = values[borders[0] : borders[1] + 1], values[borders[-2] : borders[-1] + 1]
    return float(values.mean()), float((values > 0.5).mean()), float(first.mean() - last.mean())


def region_similarity(truth: Mask, predicted: Mask, objects: Sequence[int]) -> NDArray[np.float64]:
    """J: the intersection of the true and the predicted region, as a share of their union.

    truth, predicted: T H W -> K T. An object that is in neither counts as perfect agreement.
    """
    common, either = np.empty((2, len(objects), len(truth)))
    for row, number in enumerate(objects):
        true_region, predicted_region = truth == number, predicted == number
        common[row] = _areas(true_region & predicted_region)
        either[row] = _areas(true_region | predicted_region)
    return np.where(either > 0, common / np.maximum(either, 1), 1.0)


def _areas(regions: NDArray[np.bool_]) -> NDArray[np.int64]:
    """regions: T H W -> T. NumPy counts in a whole array ten times faster than along its axes."""
    return np.fromiter(map(np.count_nonzero, regions), np.int64, len(regions))


def contour_accuracy(truth: Mask, predicted: Mask, objects: Sequence[int]) -> NDArray[np.float64]:
    """F: how much of each of two contours lies close to the other. truth, predicted: T H W -> K T.

    The contour of an object consists of the pixels whose 2 x 2 block (the pixel, its neighbors to the right, below
    and diagonally below) is partly in the object; at the edge of the image the last row and column are repeated. A
    contour pixel is matched if a pixel of the other contour is within a disk around it, whose radius is 0.8 % of the
    image's diagonal, rounded up. F is the harmonic mean of the matched shares of the predicted contour (precision)
    and of the true one (recall). An object that is in neither counts as perfect agreement.

    Contours are thin, so nothing is dilated: they are kept as sorted positions. A row of the disk is an interval of
    positions, and a binary search tells whether it is empty. All frames and all objects are searched at once.
    """
    frames, height, width = truth.shape
    radius = math.ceil(_TOLERANCE * math.hypot(height, width))
    # Positions count through objects, frames, rows and columns. Empty rows and columns keep a disk that crosses the
    # edge of an image from finding a contour of the next image.
    rows, columns = height + radius, width + radius
    true_contour, predicted_contour = (_contours(masks, objects, rows, columns) for masks in (truth, predicted))

    def matched_share(contour: Positions, other: Positions) -> NDArray[np.float64]:
        matched = contour[_are_near(contour, other, radius, columns)]
        counts, total = (
            np.bincount(found // (rows * columns), minlength=len(objects) * frames) for found in (matched, contour)
        )
        return np.where(total > 0, counts / np.maximum(total, 1), 1.0).reshape(len(objects), frames)

    precision = matched_share(predicted_contour, true_contour)
    recall = matched_share(true_contour, predicted_contour)
    total = precision + recall
    return np.where(total > 0, 2 * precision * recall / np.where(total > 0, total, 1), 0.0)


def _contours(masks: Mask, objects: Sequence[int], rows: int, columns: int) -> Positions:
    """masks: T H W -> sorted positions in K T rows columns of the contours of all objects."""
    _, height, width = masks.shape
    mixed = np.zeros(masks.shape, bool)
    mixed[:, :, :-1] |= masks[:, :, 1:] != masks[:, :, :-1]
    mixed[:, :-1] |= masks[:, 1:] != masks[:, :-1]
    mixed[:, :-1, :-1] |= masks[:, 1:, 1:] != masks[:, :-1, :-1]
    # Contours exist only where a block holds more than one number, which is rare.
    places = np.flatnonzero(mixed)
    lines, x = np.divmod(places, width)
    frame, y = np.divmod(lines, height)
    right, below = x < width - 1, width * (y < height - 1)
    block = masks.reshape(-1)[np.stack((places, places + right, places + below, places + right + below))]  # 4 P
    inside = block == np.asarray(objects)[:, None, None]  # K 4 P
    number, place = np.nonzero(inside.any(axis=1) & ~inside.all(axis=1))
    return ((number * len(masks) + frame[place]) * rows + y[place]) * columns + x[place]


def _are_near(contour: Positions, other: Positions, radius: int, columns: int) -> NDArray[np.bool_]:
    """Whether each position of a contour has a position of the other in the disk around it."""
    ended = np.append(other, np.iinfo(np.int64).max)
    near = np.zeros(len(contour), bool)
    unmatched = np.arange(len(contour))
    for row in sorted(range(-radius, radius + 1), key=abs):  # most find a match in the nearest rows
        reach = math.isqrt(radius**2 - row**2)
        first = contour[unmatched] + (row * columns - reach)
        found = ended[np.searchsorted(other, first)] <= first + 2 * reach
        near[unmatched[found]] = True
        unmatched = unmatched[~found]
    return near


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
    refuse_other_settings(asked.place, settings)
    return score_videos(f"masks in {masks}", asked, settings, videos, masks, console)


def refuse_other_settings(out: Path, settings: dict[str, Any]) -> None:
    """Masks and scores of different settings are never mixed in one folder."""
    remedy = "Choose another out, or delete that folder."
    if (out / SETTINGS).is_file():
        require_same_settings(out, read_settings(out / SETTINGS, remedy), settings, remedy)


def score_videos(
    encoder: str,
    asked: DavisSettings,
    settings: dict[str, Any],
    videos: Sequence[Video],
    masks: Path,
    console: Console,
    unfinished: bool = False,
) -> DavisResult:
    """Score masks/SEQUENCE/00000.png, and write the tables.

    encoder: what made the masks, in words; settings: how they were made; unfinished: whether the run of the encoder
    has not reached its last step.
    """
    data, out = str(asked.data), asked.place
    scores: list[ObjectScores] = []
    sequences: dict[str, dict[str, float]] = {}
    unmoved: list[ObjectScores] = []  # baseline: the masks of the first frame copied to all others
    frames = sum(len(video.masks) for video in videos)
    with Counting(console, "scoring", "frames", frames) as counting:
        for video in videos:
            counted = range(1, len(video.masks) - 1)
            truth = np.stack([video.mask(number) for number in counted])
            predicted = np.stack(list(read_prediction(masks / video.name, video, counted)))
            own = score_sequence(video.name, truth, predicted, video.objects)
            scores += own
            sequences[video.name] = summary(own)
            first = np.broadcast_to(video.mask(0), truth.shape)
            unmoved += score_sequence(video.name, truth, first, video.objects)
            counting.add(len(video.masks), video.name)
    objects = {f"{score.sequence}_{score.number}": summary([score]) for score in scores}
    usual = {field.name: field.default for field in fields(asked) if field.default not in (MISSING, None)}
    unusual = [f"{name} {value}" for name, value in settings.items() if value != usual.get(name, value)]
    counts = {"sequences": len(videos), "objects": len(scores), "frames": frames}
    result = DavisResult(
        "davis",
        encoder,
        data,
        summary(scores),
        {**settings, "unfinished": unfinished, "settings": ", ".join(unusual), **counts},
        {"objects": objects, "sequences": sequences, "first masks, not moved": summary(unmoved)},
        title=f"J and F on {data} (%)",
        files=[out / name for name in ("result.json", "scores.csv", "sequences.csv")],
    )
    write_json_atomically(out / SETTINGS, settings)
    for name, what, means in (("scores", "object", objects), ("sequences", "sequence", sequences)):
        # With as many digits as the toolkit of the challenge gives.
        digits = {row: {column: f"{value:.4f}" for column, value in cells.items()} for row, cells in means.items()}
        write_csv_atomically(out / f"{name}.csv", [{what: row, **cells} for row, cells in digits.items()])
    write_result(result, out / "result.json")
    return result


def check_predictions(folder: Path, videos: Sequence[Video]) -> None:
    """Refuse a folder that lacks masks or has masks of another size, before any mask is scored."""
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
                f"only {objects}. Number objects as in that mask; 0 is background."
            )
        yield mask
