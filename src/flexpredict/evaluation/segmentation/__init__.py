"""`flexpredict evaluate segmentation`: the class of every pixel, by a linear head on frozen patch features."""

from dataclasses import dataclass, field
from pathlib import Path

from flexpredict.errors import UserError
from flexpredict.evaluation.dense import DenseFeatures, ResultsWithPictures
from flexpredict.evaluation.results import Result
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import ranged


@dataclass(frozen=True, kw_only=True)
class SegmentationSettings(DenseFeatures, ResultsWithPictures):
    """What `evaluate_segmentation` takes.

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
    from flexpredict.evaluation.segmentation.evaluation import measure_segmentation
    from flexpredict.evaluation.segmentation.layouts import open_masked_images

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
