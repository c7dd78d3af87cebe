"""`flexpredict evaluate location`: what features tell about the place of a patch, and what shifts do to them."""

from pathlib import Path

from flexpredict.evaluation.results import Result
from flexpredict.features.arguments import EncoderLike, ImagesLike, Pooling, Precision, SizeLike, Which


def evaluate_location(
    encoder: EncoderLike,
    data: ImagesLike,
    test: ImagesLike | None = None,
    *,
    shifts: int | None = None,
    images: int | None = None,
    seed: int = 0,
    layers: int = 1,
    pooling: Pooling | None = None,
    image_size: SizeLike | None = None,
    batch_size: int = 64,
    workers: int = 0,
    precision: Precision = "32-true",
    accelerator: str = "auto",
    devices: int | str = 1,
    which: Which = "target",
    heads: int | None = None,
    grid: str | None = None,
    partial: bool = False,
    out: str | Path | None = "results",
    table: str | Path | None = None,
) -> Result:
    """Measure what features tell about the place of a patch, and what shifts of the image do to them.

    The location share is the part of the variance of features that the place explains. Row and column are read off
    single patches by a linear regression. Test images are shifted by fractions of a patch and by whole patches: how
    far do pooled features move, and how much accuracy does a linear probe lose? Images need no labels, but without
    labels there are no accuracies.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        data: images to fit on.
        test: images to test on (default: one half of data).
        shifts: largest shift in patches (default: 3, but at most half the grid).
        images: use at most this many images to fit on, and as many to test on (default: all).
        seed: seed of the halves and of the images held out.
        layers: number of last layers whose features are concatenated (paper: 1 and 4).
        pooling: mean of the patches, or class token (default: the encoder's own).
        image_size: height x width, 224 or 256x192 (default: as trained).
        batch_size: images encoded at a time.
        workers: processes that read images.
        precision: precision of the encoder; bf16-mixed is faster on GPUs.
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices that share the work, or auto for all.
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
        out: folder or .json file to write the result to.
        table: a CSV file to add the numbers to, one row for each encoder.
    """
    from flexpredict.evaluation.location.evaluation import measure_location
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.extraction import Extraction, one_image_size
    from flexpredict.training.engine import launch_fabric

    how = Extraction(layers, pooling, one_image_size(image_size), batch_size, precision, workers)
    places = ResultPlaces(out, table)
    space = open_workspace(encoder, launch_fabric(accelerator, devices), which, heads, grid, partial)
    known, asked = space.open_source(data), None if test is None else space.open_source(test)
    result = measure_location(space, known, asked, how, shifts=shifts, images=images, seed=seed)
    places.save([result], space.fabric)
    return result
