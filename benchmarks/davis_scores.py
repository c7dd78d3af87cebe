"""J and F of DAVIS: speed for all frames and objects at once, against one frame after another.

    OMP_NUM_THREADS=1 python benchmarks/davis_scores.py
    OMP_NUM_THREADS=1 python benchmarks/davis_scores.py --frames 70 --objects 5

The loop follows the toolkit of the challenge: for each object and frame, contours by shifted differences, dilated
with a disk. It dilates with scipy.ndimage; the toolkit uses OpenCV, which is not compared. A second loop uses scipy's
faster distance transform instead. Masks are built-in scenes of 480 x 854 pixels, and the masks of the next frame
serve as predictions; all contenders must agree.
"""

import argparse
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from machine import announce_machine, spread, take_turns
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from scipy import ndimage  # type: ignore[import-untyped]

from flexpredict.data.scenes.scenes import draw_videos
from flexpredict.evaluation.davis.scores import contour_accuracy, region_similarity

_SIZE = (480, 854)
_RADIUS = math.ceil(0.008 * math.hypot(*_SIZE))
_Y, _X = np.mgrid[-_RADIUS : _RADIUS + 1, -_RADIUS : _RADIUS + 1]
_DISK = _X**2 + _Y**2 <= _RADIUS**2

Masks = NDArray[np.uint8]  # T H W
Region = NDArray[np.bool_]  # H W


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--objects", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = announce_machine()
    truth, predicted = masks_of_scenes(arguments.frames, arguments.objects)
    objects = range(1, arguments.objects + 1)
    dilating = partial(one_by_one, truth, predicted, objects, within_by_dilation)
    measuring = partial(one_by_one, truth, predicted, objects, within_by_distance)
    together = partial(all_at_once, truth, predicted, objects)
    for loop in (dilating, measuring):
        np.testing.assert_allclose(together(), loop(), atol=1e-12)

    names = ("all at once", "loop, dilation by scipy", "loop, distance transform by scipy")
    contenders = {name: _timed(work) for name, work in zip(names, (together, dilating, measuring), strict=True)}
    seconds = take_turns(contenders, arguments.rounds)
    table = Table(
        "scores",
        box=box.MARKDOWN,
        title=f"J and F of {arguments.frames} frames of {_SIZE[0]} x {_SIZE[1]}, {arguments.objects} objects",
    )
    for heading in ("ms a frame", "times slower (quartiles)"):
        table.add_column(heading, justify="right")
    for name, times in seconds.items():
        ratio = spread([time / ours for time, ours in zip(times, seconds[names[0]], strict=True)])
        table.add_row(
            name,
            f"{1000 * spread(times).median / arguments.frames:.2f}",
            f"{ratio.median:.1f} ({ratio.low:.1f} to {ratio.high:.1f})",
        )
    console.print(table)


def masks_of_scenes(frames: int, objects: int) -> tuple[Masks, Masks]:
    """True and predicted masks from the first video with this number of objects."""
    for index in range(1000):
        video = draw_videos(np.array([index]), frames=1, size=64).masks
        if video.max() == objects:
            masks = draw_videos(np.array([index]), frames=frames + 1, size=_SIZE).masks[0]
            return masks[:-1], masks[1:]
    raise SystemExit(f"No scene has {objects} objects. Use 1 to 6.")


def all_at_once(truth: Masks, predicted: Masks, objects: range) -> NDArray[np.float64]:
    """J and F: 2 K T."""
    return np.stack([region_similarity(truth, predicted, objects), contour_accuracy(truth, predicted, objects)])


def one_by_one(
    truth: Masks, predicted: Masks, objects: range, within: Callable[[Region], Region]
) -> NDArray[np.float64]:
    """J and F: 2 K T. `within` dilates a contour by the disk."""
    scores = np.empty((2, len(objects), len(truth)))
    for row, number in enumerate(objects):
        for frame in range(len(truth)):
            true_region, region = truth[frame] == number, predicted[frame] == number
            union = np.sum(true_region | region)
            scores[0, row, frame] = np.sum(true_region & region) / union if union else 1.0
            scores[1, row, frame] = contour_score(contour_of(true_region), contour_of(region), within)
    return scores


def contour_score(truth: Region, predicted: Region, within: Callable[[Region], Region]) -> float:
    near_truth, near_predicted = within(truth), within(predicted)
    counts = np.sum(truth), np.sum(predicted)
    if not all(counts):
        return float(not any(counts))
    recall, precision = np.sum(truth & near_predicted) / counts[0], np.sum(predicted & near_truth) / counts[1]
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


def contour_of(region: Region) -> Region:
    padded = np.pad(region, ((0, 1), (0, 1)), mode="edge")
    return (region ^ padded[:-1, 1:]) | (region ^ padded[1:, :-1]) | (region ^ padded[1:, 1:])


def within_by_dilation(contour: Region) -> Region:
    dilated: Region = ndimage.binary_dilation(contour, _DISK)
    return dilated


def within_by_distance(contour: Region) -> Region:
    if not contour.any():
        return contour
    near: Region = ndimage.distance_transform_edt(~contour) <= _RADIUS
    return near


def _timed(work: Callable[[], object]) -> Callable[[int], object]:
    return lambda number: work()


if __name__ == "__main__":
    main()
