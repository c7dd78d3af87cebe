"""`flexpredict evaluate segmentation` and `evaluate depth`: heads on frozen patches, measured on all pixels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.errors import UserError
from flexpredict.evaluation.results import Result, ResultPlaces
from flexpredict.settings.extraction import PatchExtraction
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import ranged

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from flexpredict.evaluation.dense.images import Gallery
    from flexpredict.features.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class DenseFeatures(EncoderChoice, PatchExtraction):
    """Features of the patches of whole images.

    Args:
        image_size: shorter side of the images, 448; or 448x896, to which all are stretched (default: shorter side as
            trained).
        accelerator: auto, cpu, cuda or mps.
    """

    batch_size: int = ranged(16, least=1)
    accelerator: str = "auto"

    def open_workspace(self, task: str) -> "Workspace":
        """Open the encoder in a single process, as processes cannot share passes over the images."""
        from flexpredict.features.workspace import launch_one, open_workspace

        return open_workspace(self.encoder, launch_one(self.accelerator, task), self)


@dataclass(frozen=True, kw_only=True)
class ResultsWithPictures(ResultPlaces):
    """Where results and pictures are written.

    Args:
        pictures: number of test images to draw with their true and predicted maps; 0 for none.
        out: folder or .json file to write the result to; pictures go into a folder beside it (default: auto, which is
            RUN/results for a run folder, where its page finds the result, and results for any other encoder).
    """

    pictures: int = ranged(8, least=0)

    def save_with(self, result: Result, gallery: "Gallery", fabric: "Fabric") -> None:
        """Save the result, and pictures beside it."""
        self.save(result, fabric)
        if gallery.pictures and self.out is not None:
            folder = result.files[0].with_suffix("")
            gallery.write(folder)
            result.files.append(folder)


@dataclass(frozen=True, kw_only=True)
class SegmentationSettings(DenseFeatures, ResultsWithPictures):
    """Settings of `evaluate_segmentation`.

    Args:
        train: the folder of Pascal VOC, ADE20K or Cityscapes; IMAGES,masks=FOLDER for two folders with the same
            names; or scenes:2000.
        test: the same; of a data set with splits, its validation split unless DATA,split=NAME says otherwise.
        classes: a text file that names the classes, one a line from number 0 on, or each with its number first.
        void: numbers in masks that are ignored (default: as in the data set; 255 for two folders).
        patches: training patches to fit on, drawn evenly from all images.
        neighbors: k of k-NN; 0 for none.
        l2: regularization (default: chosen on held-out training images).
        seed: seed of the patches that are drawn.
    """

    train: str | Path = field(kw_only=False)
    test: str | Path = field(kw_only=False)
    classes: str | Path | None = None
    void: list[int] | None = None
    patches: int = ranged(100_000, least=100)
    neighbors: int = ranged(20, least=0)
    l2: float | None = ranged(None, above=0)
    seed: int = ranged(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbors > self.patches:
            raise UserError(f"neighbors={self.neighbors} is more than patches={self.patches}. Use at most as many.")


@takes_fields_of(SegmentationSettings)
def evaluate_segmentation(asked: SegmentationSettings) -> Result:
    """Semantic segmentation with frozen features: mIoU, IoU of each class, and pixel accuracy.

    A linear classifier is fitted on single patches, each with the class of most of its pixels, and k-NN votes beside
    it. Their scores are up-sampled to the masks, and every labeled pixel of the test images counts. Regularization is
    chosen on held-out training images. Images keep their shape.
    """
    from flexpredict.evaluation.dense.layouts import open_masked_images
    from flexpredict.evaluation.dense.segmentation import measure_segmentation

    known, labels = open_masked_images(str(asked.train), "train")
    tested, others = open_masked_images(str(asked.test), "test")
    labels, others = (some.changed(asked.classes, asked.void) for some in (labels, others))
    if labels != others:
        raise UserError(
            f"The masks of {known.name} and {tested.name} number their classes differently. Name data of one kind."
        )
    space = asked.open_workspace("Segmentation")
    result, gallery = measure_segmentation(space, known, tested, labels, asked)
    asked.save_with(result, gallery, space.fabric)
    return result


@dataclass(frozen=True, kw_only=True)
class DepthSettings(DenseFeatures, ResultsWithPictures):
    """Settings of `evaluate_depth`.

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
    held-out training images. Its predictions are up-sampled to the depth maps, and every pixel of the test images
    whose depth is known counts. Images keep their shape.
    """
    from flexpredict.evaluation.dense.depth import measure_depth, open_depth_images

    known = open_depth_images(str(asked.train), "train", asked)
    tested = open_depth_images(str(asked.test), "test", asked)
    space = asked.open_workspace("Depth")
    result, gallery = measure_depth(space, known, tested, asked)
    asked.save_with(result, gallery, space.fabric)
    return result
