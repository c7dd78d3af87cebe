"""Scores of objects, sequences and whole splits, as the DAVIS challenge defines them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flexpredict.evaluation.davis.contour_accuracy import contour_accuracy
from flexpredict.evaluation.davis.region_similarity import region_similarity
from flexpredict.evaluation.index_masks import VOID, Mask

_BINS = 4  # in time


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
