"""Scores of objects, sequences and whole splits, as the DAVIS challenge defines them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flexpredict.evaluation.index_masks import VOID, Mask

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
    """Percentages, each the mean over objects, whatever the length of their sequences."""
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


def by_sequence(scores: Sequence[ObjectScores]) -> dict[str, list[ObjectScores]]:
    grouped: dict[str, list[ObjectScores]] = {}
    for score in scores:
        grouped.setdefault(score.sequence, []).append(score)
    return grouped


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
    # A contour can only be where a block holds more than one number, which is in few places.
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
    for row in sorted(range(-radius, radius + 1), key=abs):  # most find their match in the rows nearest to them
        reach = math.isqrt(radius**2 - row**2)
        first = contour[unmatched] + (row * columns - reach)
        found = ended[np.searchsorted(other, first)] <= first + 2 * reach
        near[unmatched[found]] = True
        unmatched = unmatched[~found]
    return near
