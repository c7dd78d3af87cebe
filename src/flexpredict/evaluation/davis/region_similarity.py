"""J, region similarity: the intersection of the true and the predicted region, as a share of their union."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flexpredict.evaluation.index_masks import Mask


def region_similarity(truth: Mask, predicted: Mask, objects: Sequence[int]) -> NDArray[np.float64]:
    """truth, predicted: T H W -> K T. An object that is in neither counts as perfect agreement."""
    common, either = np.empty((2, len(objects), len(truth)))
    for row, number in enumerate(objects):
        true_region, predicted_region = truth == number, predicted == number
        common[row] = _areas(true_region & predicted_region)
        either[row] = _areas(true_region | predicted_region)
    return np.where(either > 0, common / np.maximum(either, 1), 1.0)


def _areas(regions: NDArray[np.bool_]) -> NDArray[np.int64]:
    """regions: T H W -> T. NumPy counts in a whole array ten times faster than along its axes."""
    return np.fromiter(map(np.count_nonzero, regions), np.int64, len(regions))
