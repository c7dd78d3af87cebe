"""How an encoder is fine-tuned."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.settings.extraction import Pooling, SizeLike
from flexpredict.settings.ranges import Checked, ranged
from flexpredict.settings.recipe import Precision

AugmentationLike: TypeAlias = Augmentation | dict[str, Any] | Literal["finetune", "ijepa", "stop", "none"]
AUGMENTATIONS = {"finetune": Augmentation(crop_scale=(0.08, 1.0), flip=0.5), **PRESETS}

# Settings that may change when a run is resumed, because they do not change what is computed.
FREE_ON_RESUME = ("accelerator", "devices", "num_nodes", "strategy", "workers", "checkpoint_every")


@dataclass(frozen=True, kw_only=True)
class Finetuning(Checked):
    """How an encoder is fine-tuned. None: chosen when training starts.

    Args:
        image_size: height x width, 224 or 256x192 (default: as trained).
        pooling: input of the head, the mean of the patches or the class token (default: the encoder's own).
        fraction: share of the labels to train on, every class in proportion (paper, Table 5: 0.01).
        image_list: a text file that names the training images to use, one per line, such as the published 1 % of
            ImageNet; fraction is then a share of these.
        held_out: share of the chosen training images to hold out; they are classified after every epoch.
        augmentation: finetune (crop of 8 to 100 % of the area, flip), ijepa, stop, none, or some of its parameters,
            which override finetune's.
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
            the model supports it). The model's own dropout stays off.
        label_smoothing: share of the target that is spread over all classes.
        mixup: alpha of the Beta distribution by which pairs of images are blended; 0 for none (MAE: 0.8).
        seed: seed of the label subset, the initial head, the order of data, crops, mixup and drop_path.
        precision: 32-true or bf16-mixed (default: bf16-mixed where the hardware has instructions for it).
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices on this machine, or auto for all.
        num_nodes: number of machines.
        strategy: strategy of Lightning Fabric; auto is DDP with several devices.
        workers: processes that read images (default: from the number of cores).
        log_every: steps between two lines of metrics.jsonl.
        checkpoint_every: steps between two checkpoints (default: twenty in a run, at most 1000 steps apart).
    """

    image_size: SizeLike | None = None
    pooling: Pooling | None = None
    fraction: float = ranged(1.0, above=0, most=1)
    image_list: str | Path | None = None
    held_out: float = ranged(0.0, least=0, below=1)
    augmentation: AugmentationLike = "finetune"
    epochs: float = ranged(50.0, above=0)
    batch_size: int | None = ranged(None, least=1)
    lr: float | None = ranged(None, above=0)
    start_lr: float = ranged(0.0, least=0, most=1)
    final_lr: float = ranged(1e-3, least=0, most=1)
    warmup_epochs: float | None = ranged(None, least=0)
    layer_decay: float = ranged(0.75, above=0, most=1)
    weight_decay: float = ranged(0.05, least=0)
    betas: tuple[float, float] = ranged((0.9, 0.999), least=0, below=1)
    clip_grad: float | None = ranged(None, above=0)
    drop_path: float | None = ranged(None, least=0, below=1)
    label_smoothing: float = ranged(0.1, least=0, below=1)
    mixup: float = ranged(0.0, least=0)
    seed: int = ranged(0, least=0)
    precision: Precision | None = None
    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: int = ranged(1, least=1)
    strategy: str = "auto"
    workers: int | None = ranged(None, least=0)
    log_every: int = ranged(10, least=1)
    checkpoint_every: int | None = ranged(None, least=1)
