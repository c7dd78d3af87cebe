"""How an encoder is fine-tuned: every number that decides the result, and a plan in which none is left open."""

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from flexpredict.cores import cores
from flexpredict.encoders.frozen import FrozenEncoder, Pooling
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning.classifier import drop_path_places
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.settings.recipe import parse_image_sizes

_AUGMENTATIONS = {"finetune": Augmentation(crop_scale=(0.08, 1.0), flip=0.5), **PRESETS}
_DROP_PATH = 0.1
_LR_OF_256 = 1e-3
_CHECKPOINTS_PER_RUN = 20


@dataclass
class Finetuning:
    """Training all of an encoder, with a linear head, on labels. The defaults are those of MAE's fine-tuning.

    Args:
        image_size: height and width, for example 224 or 256x192 (by default what the encoder was trained at).
        pooling: what the head is given, the 'mean' of the patches or the 'class' token (by default the encoder's
            own way).
        fraction: share of the labels to train on, every class in proportion (paper, Table 5: 0.01).
        image_list: a text file that names the training images to use, one a line (such as the published 1 % of
            ImageNet); `fraction` is then of these.
        held_out: share of the chosen training images that are set aside and classified after every epoch. The test
            images are looked at once, at the end.
        augmentation: 'finetune' (crop of 8 to 100 % of the area, flip), 'ijepa', 'stop', 'none', or each parameter.
        epochs: passes over the chosen images (MAE: 100 for B, 50 for L and H).
        batch_size: images of one optimiser step, over all devices (by default 64 on a CPU, 256 elsewhere; MAE: 1024).
        lr: peak learning rate of the head (by default 1e-3 · batch / 256).
        start_lr: learning rate at the start of the warm-up, as a share of lr.
        final_lr: learning rate at the end of the cosine, as a share of lr.
        warmup_epochs: length of the linear warm-up (by default a tenth of the epochs; MAE: 5).
        layer_decay: factor on the learning rate from each layer to the one below (MAE: 0.65 for B, 0.75 for L and H).
        weight_decay: never on biases, norms, tokens and positions.
        betas: AdamW's moving-average factors.
        clip_grad: largest norm of the gradient over all parameters; no clipping by default.
        drop_path: probability of leaving out a branch of the last block, less in blocks before it (by default 0.1
            where the model has a place for it). Dropout that the model itself may have stays off.
        label_smoothing: share of the target that is spread over all classes.
        mixup: alpha of the Beta distribution that images are blended by in pairs; 0 for none (MAE: 0.8).
        seed: subset of labels, initial head, order of data, crops, mixup and drop_path are all functions of it.
        precision: '32-true' or 'bf16-mixed' (by default bf16 on a GPU that has it).
        accelerator: what Lightning Fabric should run on ('auto', 'cpu', 'cuda', 'mps').
        devices: number of devices on this machine, or 'auto' for all.
        num_nodes: number of machines.
        strategy: how Lightning Fabric spreads the work ('auto' is DDP where there are several devices).
        workers: processes that read images (by default from the number of cores).
        log_every: steps between two lines of metrics.jsonl.
        checkpoint_every: steps between two checkpoints (by default twenty in a run, at most 1000 steps apart).
    """

    image_size: int | str | None = None
    pooling: Pooling | None = None
    fraction: float = 1.0
    image_list: str | None = None
    held_out: float = 0.0
    augmentation: Augmentation | Literal["finetune", "ijepa", "stop", "none"] = "finetune"
    epochs: float = 50.0
    batch_size: int | None = None
    lr: float | None = None
    start_lr: float = 0.0
    final_lr: float = 1e-3
    warmup_epochs: float | None = None
    layer_decay: float = 0.75
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    clip_grad: float | None = None
    drop_path: float | None = None
    label_smoothing: float = 0.1
    mixup: float = 0.0
    seed: int = 0
    precision: Literal["32-true", "bf16-mixed"] | None = None
    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: int = 1
    strategy: str = "auto"
    workers: int | None = None
    log_every: int = 10
    checkpoint_every: int | None = None


# What may change when a run is resumed, because it does not change what is computed.
FREE_ON_RESUME = ("accelerator", "devices", "num_nodes", "strategy", "workers", "checkpoint_every")

# name: (least, most, whether the least and the most are allowed themselves)
_RANGES: dict[str, tuple[float, float, bool, bool]] = {
    "fraction": (0, 1, False, True),
    "held_out": (0, 1, True, False),
    "epochs": (0, math.inf, False, False),
    "batch_size": (1, math.inf, True, False),
    "lr": (0, math.inf, False, False),
    "start_lr": (0, 1, True, True),
    "final_lr": (0, 1, True, True),
    "warmup_epochs": (0, math.inf, True, False),
    "layer_decay": (0, 1, False, True),
    "weight_decay": (0, math.inf, True, False),
    "clip_grad": (0, math.inf, False, False),
    "drop_path": (0, 1, True, False),
    "label_smoothing": (0, 1, True, False),
    "mixup": (0, math.inf, True, False),
    "workers": (0, math.inf, True, False),
    "log_every": (1, math.inf, True, False),
    "checkpoint_every": (1, math.inf, True, False),
}


def check_settings(settings: Finetuning) -> None:
    """Refuse numbers that mean nothing."""
    for name, (least, most, with_least, with_most) in _RANGES.items():
        value = getattr(settings, name)
        if value is None:
            continue
        above = value >= least if with_least else value > least
        below = value <= most if with_most else value < most
        if not (above and below):
            limits = f"{'at least' if with_least else 'more than'} {least:g}"
            if most < math.inf:
                limits += f" and {'at most' if with_most else 'less than'} {most:g}"
            raise UserError(f"{name} is {value}; it must be {limits}.")
    if settings.augmentation not in _AUGMENTATIONS and not isinstance(settings.augmentation, Augmentation):
        raise UserError(
            f"There is no augmentation '{settings.augmentation}'. Use one of: {', '.join(_AUGMENTATIONS)}."
        )


@dataclass(frozen=True)
class Plan:
    """Settings with nothing left open, and what follows from them."""

    settings: Finetuning
    image_size: tuple[int, int]
    augmentation: Augmentation
    samples: int  # in an epoch
    batch_size: int
    steps: int
    warmup_steps: int
    lr: float
    drop_path: float
    workers: int
    checkpoint_every: int

    def checkpoint_due(self, step: int) -> bool:
        return step % self.checkpoint_every == 0 or step == self.steps

    def log_due(self, step: int) -> bool:
        return step % self.settings.log_every == 0 or step == self.steps

    def epoch_done(self, step: int) -> bool:
        """Whether this step completes an epoch, or the run."""
        passed = step * self.batch_size // self.samples > (step - 1) * self.batch_size // self.samples
        return passed or step == self.steps

    def describe(self) -> dict[str, Any]:
        """The resolved settings as plain values, for config.yaml."""
        described: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self.settings)))
        return described


def make_plan(
    settings: Finetuning, encoder: FrozenEncoder, samples: int, device: torch.device, world_size: int
) -> Plan:
    """Fill in what the settings leave open. samples: images that are trained on."""
    on_gpu = device.type != "cpu"
    image_size = _image_size(settings, encoder)
    chosen = settings.augmentation
    augmentation = chosen if isinstance(chosen, Augmentation) else _AUGMENTATIONS[chosen]
    # Mixup blends the images of a rank in pairs.
    unit = 2 * world_size if settings.mixup else world_size
    batch_size = settings.batch_size or max(1, min(256 if on_gpu else 64, samples) // unit) * unit
    if batch_size % unit:
        pairs = " in pairs, as mixup needs them" if settings.mixup else ""
        raise UserError(
            f"A batch of {batch_size} images cannot be shared out evenly to {world_size} device(s){pairs}. "
            f"Use --batch_size {max(1, round(batch_size / unit)) * unit}."
        )
    steps = math.ceil(settings.epochs * samples / batch_size)
    warmup = settings.epochs / 10 if settings.warmup_epochs is None else settings.warmup_epochs
    lr = _LR_OF_256 * batch_size / 256 if settings.lr is None else settings.lr
    drop_path = _drop_path(settings, encoder)
    workers = settings.workers
    if workers is None:
        workers = min(8, max(1, cores() // world_size)) if on_gpu else 0
    checkpoint_every = settings.checkpoint_every or min(1000, math.ceil(steps / _CHECKPOINTS_PER_RUN))
    resolved = dataclasses.replace(
        settings,
        image_size=f"{image_size[0]}x{image_size[1]}",
        pooling=settings.pooling or encoder.pooling,
        augmentation=augmentation,
        batch_size=batch_size,
        lr=lr,
        warmup_epochs=warmup,
        drop_path=drop_path,
        workers=workers,
        checkpoint_every=checkpoint_every,
    )
    return Plan(
        settings=resolved,
        image_size=image_size,
        augmentation=augmentation,
        samples=samples,
        batch_size=batch_size,
        steps=steps,
        warmup_steps=min(round(warmup * samples / batch_size), steps),
        lr=lr,
        drop_path=drop_path,
        workers=workers,
        checkpoint_every=checkpoint_every,
    )


def _image_size(settings: Finetuning, encoder: FrozenEncoder) -> tuple[int, int]:
    sizes = [encoder.image_size] if settings.image_size is None else parse_image_sizes(settings.image_size)
    if len(sizes) > 1:
        raise UserError(f"image_size {settings.image_size} names several sizes. Fine-tuning has one: give the first.")
    encoder.check_size(sizes[0])
    return sizes[0]


def _drop_path(settings: Finetuning, encoder: FrozenEncoder) -> float:
    possible = bool(drop_path_places(encoder))
    if settings.drop_path and not possible:
        raise UserError(
            f"{encoder.what} has no place for drop_path (its blocks have none of that name). Use --drop_path 0."
        )
    if settings.drop_path is None:
        return _DROP_PATH if possible else 0.0
    return settings.drop_path
