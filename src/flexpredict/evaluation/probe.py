"""`flexpredict probe`: linear and nearest-neighbor classification with frozen features."""

from pathlib import Path

from flexpredict.evaluation.results import Result
from flexpredict.features.arguments import EncoderLike, ImagesLike, Pooling, Precision, SizeLike, Which


def probe(
    encoder: EncoderLike,
    train: ImagesLike,
    test: ImagesLike,
    *,
    labels: list[float] | None = None,
    subsets: int = 5,
    label_list: list[Path] | None = None,
    neighbors: int = 20,
    l2: float | None = None,
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
    """Train a linear classifier on frozen features, and classify by nearest neighbors.

    By default with 1 %, 10 % and all of the labels. Regularization is chosen on held-out training images, never on
    test images. Features are cached, so another protocol with the same encoder takes seconds.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        train: labeled images to train on.
        test: labeled images of the same classes to test on.
        labels: shares of the training labels (default: 0.01 0.1 1).
        subsets: draws of each share below 1; numbers are their means, with 95 % intervals.
        label_list: text files that name the images of a subset, one a line.
        neighbors: k of k-NN; 0 for none.
        l2: regularization (default: chosen on held-out training images).
        seed: seed of the subsets and of the images held out.
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
    from flexpredict.evaluation.probing import run_probe
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.extraction import Extraction, one_image_size
    from flexpredict.settings.probing import Probing
    from flexpredict.training.engine import launch_fabric

    how = Extraction(layers, pooling, one_image_size(image_size), batch_size, precision, workers)
    shares = None if labels is None else tuple(labels)
    probing = Probing(shares, subsets, tuple(map(Path, label_list or ())), neighbors, l2, seed)
    places = ResultPlaces(out, table)
    space = open_workspace(encoder, launch_fabric(accelerator, devices), which, heads, grid, partial)
    sources = space.open_source(train), space.open_source(test)
    result = run_probe(space.encoder, *sources, how, probing, fabric=space.fabric, console=space.console)
    places.save([result], space.fabric)
    return result
