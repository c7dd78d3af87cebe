"""`flexpredict evaluate depth`: the depth of every pixel, by a linear head on frozen patch features."""

from pathlib import Path

from flexpredict.evaluation.results import Result
from flexpredict.features.arguments import EncoderLike, Precision, SizeLike, Which


def evaluate_depth(
    encoder: EncoderLike,
    train: str | Path,
    test: str | Path,
    *,
    scale: float = 1000.0,
    max_depth: float | None = None,
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
    """Depth with frozen features: RMSE, AbsRel and δ1 (the share of pixels within a ratio of 1.25).

    A ridge regression is fitted on single patches, each with the mean depth of its pixels; its penalty is chosen on
    held-out training images. What it says is up-sampled to the depth maps, and every pixel of the test images whose
    depth is known counts. Images keep their shape.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        train: IMAGES,depth=FOLDER: two folders with the same names, whose depth maps are 16-bit PNG or .npy (meters;
            0 is unknown); or scenes:2000.
        test: the same.
        scale: numbers in PNG files for one meter (NYU 1000, KITTI 256).
        max_depth: ignore pixels farther than this, in meters (default: none).
        pictures: number of test images to draw with their true and predicted depth; 0 for none.
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
    from flexpredict.evaluation.dense.encoded_sizes import EncodedSize
    from flexpredict.evaluation.dense.protocol import launch_one, save
    from flexpredict.evaluation.depth.evaluation import measure_depth
    from flexpredict.evaluation.depth.maps import open_depth_images
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.dense import DepthMeasuring
    from flexpredict.settings.extraction import Extraction

    how = Extraction(layers, None, None, batch_size, precision, workers)
    measuring = DepthMeasuring(scale, max_depth, pictures)
    places = ResultPlaces(out, table)
    fabric = launch_one(accelerator, "Depth")
    known, asked = open_depth_images(str(train), "train", measuring), open_depth_images(str(test), "test", measuring)
    space = open_workspace(encoder, fabric, which, heads, grid, partial)
    size = EncodedSize(image_size, space.encoder)
    result, drawn = measure_depth(space, known, asked, size, how, measuring)
    save(places, result, drawn, fabric)
    return result
