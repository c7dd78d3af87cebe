"""A picture of an image with its true and its predicted classes."""

import numpy as np
from numpy.typing import NDArray

from flexpredict.data.decoding import Encoded
from flexpredict.evaluation.dense.pictures import fitted_to, frame_of, side_by_side
from flexpredict.evaluation.index_masks import VOID, overlaid
from flexpredict.evaluation.segmentation.labels import Classes
from flexpredict.evaluation.segmentation.layouts import BACKGROUND


def draw_classes(
    encoded: Encoded, name: str, truth: NDArray[np.uint8], predicted: NDArray[np.uint8], classes: Classes
) -> NDArray[np.uint8]:
    """truth, predicted: H W, indices of classes. Background and void are left as they are."""
    frame, tinted_from = frame_of(encoded, name), int(classes.names[0] == BACKGROUND)
    panels = [frame]
    for mask in (truth, predicted):
        colors = np.where(truth == VOID, 0, mask + (1 - tinted_from)).astype(np.uint8)  # 0 is not tinted
        panels.append(overlaid(frame, fitted_to(frame, colors)))
    return side_by_side(*panels)
