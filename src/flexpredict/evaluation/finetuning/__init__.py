"""`flexpredict finetune`: trains all weights of an encoder on labels, and tests once."""

from pathlib import Path

from flexpredict.evaluation.results import Result
from flexpredict.features.arguments import EncoderLike, ImagesLike, Pooling, Precision, SizeLike, Which
from flexpredict.settings.finetuning import AugmentationLike


def finetune(
    encoder: EncoderLike,
    train: ImagesLike,
    test: ImagesLike,
    *,
    out: str | Path = "runs/finetune",
    table: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    image_size: SizeLike | None = None,
    pooling: Pooling | None = None,
    fraction: float = 1.0,
    image_list: str | Path | None = None,
    held_out: float = 0.0,
    augmentation: AugmentationLike = "finetune",
    epochs: float = 50.0,
    batch_size: int | None = None,
    lr: float | None = None,
    start_lr: float = 0.0,
    final_lr: float = 1e-3,
    warmup_epochs: float | None = None,
    layer_decay: float = 0.75,
    weight_decay: float = 0.05,
    betas: tuple[float, float] = (0.9, 0.999),
    clip_grad: float | None = None,
    drop_path: float | None = None,
    label_smoothing: float = 0.1,
    mixup: float = 0.0,
    seed: int = 0,
    precision: Precision | None = None,
    accelerator: str = "auto",
    devices: int | str = "auto",
    num_nodes: int = 1,
    strategy: str = "auto",
    workers: int | None = None,
    log_every: int = 10,
    checkpoint_every: int | None = None,
    which: Which = "target",
    heads: int | None = None,
    grid: str | None = None,
    partial: bool = False,
) -> Result | None:
    """Train all weights of an encoder, and a linear head, on labeled images; test once, at the end.

    The defaults are those of MAE's fine-tuning; the paper's Table 5 is fraction=0.01. Nothing is chosen by test
    images. OUT holds config.yaml, metrics.jsonl, checkpoints/, model.safetensors (encoder and head) and result.json.
    If a signal interrupts the training, everything is saved, nothing is returned, and `resume` goes on.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME. A loaded encoder is
            trained in place.
        train: labeled images to train on.
        test: labeled images of the same classes to test on.
        out: folder of the run.
        table: a CSV file to add the numbers to, one row for each encoder.
        resume: continue the interrupted run in OUT.
        overwrite: replace the run in OUT.
        image_size: height x width, 224 or 256x192 (default: as trained).
        pooling: input of the head, the mean of the patches or the class token (default: the encoder's own).
        fraction: share of the labels to train on, every class in proportion (paper, Table 5: 0.01).
        image_list: a text file that names the training images to use, one a line, such as the published 1 % of
            ImageNet; fraction is then of these.
        held_out: share of the chosen training images to hold out; they are classified after every epoch.
        augmentation: finetune (crop of 8 to 100 % of the area, flip), ijepa, stop, none, or its parameters.
        epochs: passes over the chosen images (MAE: 100 for B, 50 for L and H).
        batch_size: images in one optimizer step, over all devices (default: 64 on a CPU, 256 on GPUs; MAE: 1024).
        lr: peak learning rate of the head (default: 1e-3 · batch_size / 256).
        start_lr: learning rate at the start of the warm-up, as a share of lr.
        final_lr: learning rate at the end of the cosine schedule, as a share of lr.
        warmup_epochs: length of the linear warm-up (default: a tenth of the epochs; MAE: 5).
        layer_decay: factor on the learning rate from each layer to the one below (MAE: 0.65 for B, 0.75 for L and
            H).
        weight_decay: weight decay; never on biases, norms, tokens and positions.
        betas: moving-average factors of AdamW.
        clip_grad: largest norm of the gradient over all parameters (default: no clipping).
        drop_path: probability of leaving out a branch of the last block, lower in earlier blocks (default: 0.1 if
            the model has a place for it). Dropout of the model itself stays off.
        label_smoothing: share of the target that is spread over all classes.
        mixup: alpha of the Beta distribution by which pairs of images are blended; 0 for none (MAE: 0.8).
        seed: seed of the label subset, the initial head, the order of data, crops, mixup and drop_path.
        precision: 32-true or bf16-mixed (default: bf16-mixed on a GPU that supports it).
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices on this machine, or auto for all.
        num_nodes: number of machines.
        strategy: strategy of Lightning Fabric; auto is DDP where there are several devices.
        workers: processes that read images (default: from the number of cores).
        log_every: steps between two lines of metrics.jsonl.
        checkpoint_every: steps between two checkpoints (default: twenty in a run, at most 1000 steps apart).
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
    """
    arguments = locals()
    from dataclasses import fields

    from flexpredict.evaluation.finetuning.run import resumed, run_finetuning
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.features.workspace import open_workspace
    from flexpredict.runs.run_folder import RunFolder
    from flexpredict.settings.finetuning import Finetuning
    from flexpredict.training.engine import launch_fabric
    from flexpredict.training.plan import default_precision

    settings = Finetuning(**{field.name: arguments[field.name] for field in fields(Finetuning)})
    places, folder = ResultPlaces(None, table), RunFolder(Path(out))
    if resume:
        settings = resumed(settings, folder)
    chosen = settings.precision or default_precision(accelerator)
    fabric = launch_fabric(accelerator, devices, num_nodes, strategy, chosen)
    space = open_workspace(encoder, fabric, which, heads, grid, partial)
    sources = space.open_source(train), space.open_source(test)
    result = run_finetuning(space, *sources, folder, settings, chosen, resume=resume, overwrite=overwrite)
    if result is not None:
        places.save([result], fabric)
    return result
