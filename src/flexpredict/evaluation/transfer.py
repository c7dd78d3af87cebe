"""`flexpredict transfer`: the linear probe on several data sets, in the form of the paper's Table 4."""

from pathlib import Path

from flexpredict.evaluation.results import Results
from flexpredict.features.arguments import EncoderLike, Pooling, Precision, SizeLike, Which


def transfer(
    encoder: EncoderLike,
    datasets: list[str],
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
) -> Results:
    """The linear probe on several data sets, in one table (paper, Table 4).

    For example on CIFAR-100, Places205 and iNaturalist 2018, or on any other labeled images.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        datasets: each DATA, NAME=DATA or NAME=TRAIN::TEST; DATA is a folder with train and test (or val) below,
            parquet files with such splits, hf://NAME, or scenes.
        labels: shares of the training labels (default: 1).
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
        out: folder or .json file to write the results to.
        table: a CSV file to add the numbers to, one row for each encoder.
    """
    from flexpredict.errors import UserError
    from flexpredict.evaluation.probing import ProbeTask, run_probes
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.evaluation.splits import open_splits
    from flexpredict.features.workspace import open_workspace
    from flexpredict.settings.extraction import Extraction, one_image_size
    from flexpredict.settings.probing import Probing
    from flexpredict.training.engine import launch_fabric

    how = Extraction(layers, pooling, one_image_size(image_size), batch_size, precision, workers)
    shares = (1.0,) if labels is None else tuple(labels)
    probing = Probing(shares, subsets, tuple(map(Path, label_list or ())), neighbors, l2, seed)
    places = ResultPlaces(out, table)
    space = open_workspace(encoder, launch_fabric(accelerator, devices), which, heads, grid, partial)
    tasks = [ProbeTask("transfer", *open_splits(dataset)) for dataset in datasets]
    names = [task.data for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"Two data sets are called '{twice}'. Tell them apart with NAME=DATA.")
    results = run_probes(space, tasks, how, probing, "Transfer: accuracy on the test images, frozen encoder (%)")
    places.save(results.results, space.fabric)
    return results
