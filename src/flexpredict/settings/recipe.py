"""The recipe of a run: every setting that determines its result, and how to run it on this machine."""

from dataclasses import dataclass, field
from typing import Any, Literal

from flexpredict.errors import UserError
from flexpredict.settings.augmentation import Augmentation
from flexpredict.settings.masking import Masking
from flexpredict.settings.optimizer import Optimizer, SettledOptimizer
from flexpredict.settings.positions import Positions
from flexpredict.settings.ranges import ranged
from flexpredict.settings.targets import Targets

Scale = Literal["small", "continued", "published"]
MethodName = Literal["ijepa", "mae", "data2vec"]
Precision = Literal["32-true", "bf16-mixed"]
EncoderPositions = Literal["sincos", "learned", "relative"]
Strategy = Literal["auto", "ddp", "fsdp"]


@dataclass
class PredictorSize:
    """The predictor g_φ, or the decoder of mae. Left out, its size follows the encoder's.

    Args:
        dim: width d_p (paper: 384 for B, L and H; by default half the encoder's width, at most 384).
        depth: number of blocks (paper: 6 for B, 12 for L and H; by default half the encoder's depth).
        heads: attention heads (by default the encoder's number, or the nearest that divides the width).
    """

    dim: int | None = ranged(None, least=4, most=65_536)
    depth: int | None = ranged(None, least=1, most=1000)
    heads: int | None = ranged(None, least=1)


@dataclass(kw_only=True)
class Recipe:
    """Pre-training by I-JEPA with stochastic positions, or by MAE or data2vec. Everything but the data has a default.

    Args:
        data: a folder of images (nested or flat, no labels needed), WebDataset shards (shards-{000..127}.tar),
            parquet files, hf://NAME[:SPLIT], or 'scenes' for the built-in ones; or several of these. stream: before
            shards, parquet files or hf:// reads them in order, without a copy on disk.
        method: the objective: 'ijepa' predicts features of masked blocks, 'mae' pixels of masked patches,
            'data2vec' averaged features of masked patches, inside the encoder.
        model: timm name of a plain ViT (by default vit_small or vit_base on a GPU, and on a CPU
            a vit_tiny 96 wide and 4 deep).
        image_size: height and width, for example 224 or 256x192 (by default from the images, at most 224). Several,
            as in 224,160,192x256, train at several resolutions: each step has one, the first is the encoder's own.
        patch_size: side of a patch (by default the model's, smaller for small images).
        class_token: keep the class token of models that have one (the paper's have none).
        model_options: further arguments of timm's constructor, for example {embed_dim: 96, depth: 4}.
        embedding_scale: factor on new patch embeddings, relative to PyTorch's own initial weights. Not for data2vec,
            whose noise goes through these weights.
        positions: positions of tokens, and the noise on them.
        encoder_positions: positions of the encoder: 'sincos', 'learned', or BEiT's 'relative' (by default relative
            for models of BEiT's kind, learned if positions.kind is learned, else sin-cos).
        predictor: size of the predictor; mae: of the decoder (data2vec has none).
        masking: which patches are seen and which are predicted.
        targets: ijepa and data2vec: which features are predicted, and how they are normalized.
        normalize_pixels: mae: predict each patch minus its mean, divided by its standard deviation.
        augmentation: 'ijepa' (crop), 'stop' (crop, flip, blur, grayscale), 'none', or some of its parameters, which
            override the default (stop; crop and flip in small and continued runs).
        scale: which set of defaults to use: by default 'continued' with init_from, 'small' if the run sees fewer than
            5 million images (not for data2vec), else 'published'.
        epochs: passes over the data (by default from the amount of data and the hardware).
        minutes: instead of epochs, the time for training on this machine: a few steps are measured first, then all
            schedules are fitted. If a recipe file gives epochs, its warm-up is scaled with them.
        epoch_size: images that count as one epoch (by default all; needed for streams whose length is unknown).
        max_skipped: share of unreadable images above which the run stops.
        on_nan: if the loss is not a number or explodes: 'stop', or 'rollback' to the last checkpoint and skip the
            batch that caused it.
        batch_size: images of one optimizer step, over all devices (by default 64 on a CPU, 128 a GPU).
        accumulate: number of parts in which a device processes its share of a batch, to save memory.
        optimizer: AdamW or Muon, and the schedules.
        init_from: start from other weights: a run folder, a checkpoint of I-JEPA, StoP, MAE, DINO and others,
            timm:NAME or hf:NAME; model and predictor are then taken from there unless the recipe names them, and the
            optimizer and step count start afresh.
        seed: initial weights, order of data, crops, masks and noise are all functions of it.
        precision: '32-true' or 'bf16-mixed', on a CPU in linear layers only (by default bf16 where the hardware has
            instructions for it).
        compile: compile the model with torch.compile.
        checkpoint_activations: keep only the inputs of transformer blocks, and compute the rest again in the backward
            pass: a fraction of the memory for about a third more work, and the same weights.
        accelerator: what Lightning Fabric should run on ('auto', 'cpu', 'cuda', 'mps').
        devices: number of devices on this machine, or 'auto' for all.
        num_nodes: number of machines.
        strategy: how the work is spread over devices: 'ddp' (each has the whole model), or 'fsdp' (the devices of a
            machine share weights, gradients and the optimizer's state); 'auto' is ddp with several devices.
        workers: processes that read images (by default from the number of cores).
        log_every: steps between two lines of metrics.jsonl.
        checkpoint_every: steps between two checkpoints (by default two minutes, or longer if writing them would take
            more than a twentieth of the time).
        keep_last: number of newest checkpoints to keep; more than one, in case the newest is damaged.
        keep_every: also keep one checkpoint for good every this many epochs.
        keep_best: also keep the checkpoint that probed best (needs probe_data or probe_every).
        probe_every: classify labeled images by k-NN and linearly every this many epochs (by default ten times in a
            run with probe_data, else never).
        probe_data: labeled images to classify (by default the training images).
        loggers: also log to 'wandb' or 'mlflow', if installed; metrics.jsonl and TensorBoard are always written.
    """

    data: list[str] | str | None = field(default=None, kw_only=False)
    method: MethodName = "ijepa"
    model: str | None = None
    image_size: int | str | tuple[int, int] | None = None
    patch_size: int | None = ranged(None, least=1)
    class_token: bool = False
    model_options: dict[str, Any] = field(default_factory=dict)
    embedding_scale: float = ranged(1.0, above=0, most=100)
    positions: Positions = field(default_factory=Positions)
    encoder_positions: EncoderPositions | None = None
    predictor: PredictorSize = field(default_factory=PredictorSize)
    masking: Masking = field(default_factory=Masking)
    targets: Targets = field(default_factory=Targets)
    normalize_pixels: bool = True
    augmentation: Augmentation | dict[str, Any] | Literal["ijepa", "stop", "none"] | None = None
    scale: Scale | None = None
    epochs: float | None = ranged(None, above=0, most=1e6)
    minutes: float | None = ranged(None, above=0)
    epoch_size: int | None = ranged(None, least=1)
    max_skipped: float = ranged(0.05, least=0, most=1)
    on_nan: Literal["stop", "rollback"] = "stop"
    batch_size: int | None = ranged(None, least=1)
    accumulate: int = ranged(1, least=1)
    optimizer: Optimizer = field(default_factory=Optimizer)
    init_from: str | None = None
    seed: int = ranged(0, least=0)
    precision: Precision | None = None
    compile: bool = False
    checkpoint_activations: bool = False
    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: int = ranged(1, least=1)
    strategy: Strategy = "auto"
    workers: int | None = ranged(None, least=0)
    log_every: int = ranged(10, least=1)
    checkpoint_every: int | None = ranged(None, least=1)
    keep_last: int = ranged(2, least=1)
    keep_every: float | None = ranged(None, above=0)
    keep_best: bool = False
    probe_every: float | None = ranged(None, above=0)
    probe_data: list[str] | str | None = None
    loggers: list[Literal["wandb", "mlflow"]] = field(default_factory=list)


@dataclass(kw_only=True)
class SettledRecipe(Recipe):
    """A recipe with every setting filled in, as in config.yaml."""

    model: str = ""
    image_size: str = ""
    patch_size: int = 0
    encoder_positions: EncoderPositions = "sincos"
    augmentation: Augmentation = field(default_factory=Augmentation)
    scale: Scale = "published"
    epochs: float = 0.0
    batch_size: int = 0
    optimizer: SettledOptimizer = field(default_factory=SettledOptimizer)
    precision: Precision = "32-true"
    workers: int = 0


# Settings that may change when a run is resumed, as its result stays the same. Two exceptions: another kind of device
# rounds differently, and another number of devices or workers changes the order of a stream.
FREE_ON_RESUME = (
    "data",  # the images may have moved; a check makes sure that they are the same
    "probe_data",
    "accelerator",
    "devices",
    "num_nodes",
    "strategy",
    "checkpoint_activations",
    "workers",
    "checkpoint_every",
    "keep_last",
    "keep_every",
    "keep_best",
    "on_nan",
    "loggers",
    "max_skipped",
)


def parse_image_sizes(value: int | str | tuple[int, int]) -> list[tuple[int, int]]:
    """224, "256x192" (height x width), (256, 192), or several with commas between -> (height, width) of each."""
    text = "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return [_parse_image_size(part.strip()) for part in text.split(",")]


def _parse_image_size(value: str) -> tuple[int, int]:
    parts = value.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"image_size={value} is not a size. Give one number such as 224, or height x width: 256x192.")
    return int(parts[0]), int(parts[-1])
