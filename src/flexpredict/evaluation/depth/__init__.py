"""`flexpredict evaluate depth`: the depth of every pixel, by a linear head on frozen patch features."""

from dataclasses import dataclass, field
from pathlib import Path

from flexpredict.evaluation.dense import DenseFeatures, ResultsWithPictures
from flexpredict.evaluation.results import Result
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import ranged


@dataclass(frozen=True, kw_only=True)
class DepthSettings(DenseFeatures, ResultsWithPictures):
    """What `evaluate_depth` takes.

    Args:
        train: IMAGES,depth=FOLDER: two folders with the same names, whose depth maps are 16-bit PNG or .npy (meters;
            0 is unknown); or scenes:2000.
        test: the same.
        scale: numbers in PNG files for one meter (NYU 1000, KITTI 256).
        max_depth: ignore pixels farther than this, in meters (default: none).
    """

    train: str | Path = field(kw_only=False)
    test: str | Path = field(kw_only=False)
    scale: float = ranged(1000.0, above=0)
    max_depth: float | None = ranged(None, above=0)


@takes_fields_of(DepthSettings)
def evaluate_depth(asked: DepthSettings) -> Result:
    """Depth with frozen features: RMSE, AbsRel and δ1 (the share of pixels within a ratio of 1.25).

    A ridge regression is fitted on single patches, each with the mean depth of its pixels; its penalty is chosen on
    held-out training images. What it says is up-sampled to the depth maps, and every pixel of the test images whose
    depth is known counts. Images keep their shape.
    """
    from flexpredict.evaluation.depth.evaluation import measure_depth
    from flexpredict.evaluation.depth.maps import open_depth_images

    known = open_depth_images(str(asked.train), "train", asked)
    tested = open_depth_images(str(asked.test), "test", asked)
    space = asked.open_workspace("Depth")
    result, gallery = measure_depth(space, known, tested, asked)
    asked.save_with(result, gallery, space.fabric)
    return result
