"""`flexpredict evaluate segmentation`: the class of every pixel, by a linear head on frozen patch features."""

from pathlib import Path

from flexpredict.evaluation.results import Result
from flexpredict.features.arguments import EncoderLike, Precision, SizeLike, Which


def evaluate_segmentation(
    encoder: EncoderLike,
    train: str | Path,
    test: str | Path,
    *,
    classes: str | Path | None = None,
    void: list[int] | None = None,
    patches: int = 100_000,
    neighbors: int = 20,
    l2: float | None = None,
    seed: int = 0,
    pictures: int = 8,
    layers: int = 1,
    image_size: SizeLike | None = None,
    batch_size: int = 16,
    workers: int = 0,
    precision: Precision = "32-true",
    accelerator: str = "auto",
    which: Which = "target",
    heads: int | None = None,
    grid: str | None = None,
    partial: bool = False,
    out: str | Path | None = "results",
    table: str | Path | None = None,
) -> Result:
    """Semantic segmentation with frozen features: mIoU, IoU of each class, and pixel accuracy.

    A linear classifier is fitted on single patches, each with the class of most of its pixels, and k-NN votes beside
    it. Their scores are up-sampled to the masks, and every labeled pixel of the test images counts. Regularization is
    chosen on held-out training images. Images keep their shape.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        train: the folder of Pascal VOC, ADE20K or Cityscapes; IMAGES,masks=FOLDER for two folders with the same
            names; or scenes:2000.
        test: the same; of a data set with splits, its validation split unless DATA,split=NAME says otherwise.
        classes: a text file that names the classes, one a line from number 0 on, or each with its number first.
        void: numbers in masks that are ignored (default: as in the data set; 255 for two folders).
        patches: training patches to fit on, drawn evenly from all images.
        neighbors: k of k-NN; 0 for none.
        l2: regularization (default: chosen on held-out training images).
        seed: seed of the patches that are drawn.
        pictures: number of test images to draw with their true and predicted classes; 0 for none.
        layers: number of last layers whose features are concatenated (paper: 1 and 4).
        image_size: shorter side of the images, 448; or 448x896, to which all are stretched (default: shorter side as
            trained).
        batch_size: images encoded at a time.
        workers: processes that read images.
        precision: precision of the encoder; bf16-mixed is faster on GPUs.
        accelerator: auto, cpu, cuda or mps.
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
        out: folder or .json file to write the result to; pictures go into a folder beside it.
        table: a CSV file to add the numbers to, one row for each encoder.
    """
    from flexpredict.errors import UserError
    from flexpredict.evaluation.dense.encoded_sizes import EncodedSize
    from flexpredict.evaluation.dense.protocol import launch_one, save
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.evaluation.segmentation.evaluation import measure_segmentation
    from flexpredict.evaluation.segmentation.layouts import open_masked_images
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.dense import Segmenting
    from flexpredict.settings.extraction import Extraction

    how = Extraction(layers, None, None, batch_size, precision, workers)
    head = Segmenting(patches, neighbors, l2, seed, pictures)
    places = ResultPlaces(out, table)
    fabric = launch_one(accelerator, "Segmentation")
    known, labels = open_masked_images(str(train), "train")
    asked, others = open_masked_images(str(test), "test")
    labels = labels.changed(classes, void)
    if labels != others.changed(classes, void):
        raise UserError(
            f"The masks of {known.name} and {asked.name} number their classes differently. Name data of one kind."
        )
    space = open_workspace(encoder, fabric, which, heads, grid, partial)
    size = EncodedSize(image_size, space.encoder)
    result, drawn = measure_segmentation(space, known, asked, labels, size, how, head)
    save(places, result, drawn, fabric)
    return result
