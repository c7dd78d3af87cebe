"""Errors of predicted depth, as they are usual: of each image over its known pixels, averaged over images."""

from dataclasses import dataclass, field

import numpy as np

from flexpredict.evaluation.depth.maps import Depths

_RATIO = 1.25


@dataclass
class DepthErrors:
    """RMSE, AbsRel and δ1 of images, one by one."""

    rmse: list[float] = field(default_factory=list)
    absolute_relative: list[float] = field(default_factory=list)
    within_ratio: list[float] = field(default_factory=list)

    def add(self, truth: Depths, predicted: Depths) -> None:
        """H W each, in meters; pixels whose truth is 0 are ignored, and so is an image without any other."""
        known = truth > 0
        if not known.any():
            return
        true, given = truth[known].astype(np.float64), predicted[known].astype(np.float64)
        self.rmse.append(float(np.sqrt(np.mean((given - true) ** 2))))
        self.absolute_relative.append(float(np.mean(np.abs(given - true) / true)))
        self.within_ratio.append(float(np.mean(np.maximum(given / true, true / given) < _RATIO)))

    def means(self) -> dict[str, float]:
        """RMSE in meters, the others in percent."""
        return {
            "RMSE": float(np.mean(self.rmse)),
            "AbsRel": 100 * float(np.mean(self.absolute_relative)),
            "δ1": 100 * float(np.mean(self.within_ratio)),
        }
