"""How an encoder is fine-tuned."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from flexpredict.errors import UserError
from flexpredict.settings.arguments import Pooling, Precision, SizeLike
from flexpredict.settings.augmentation import PRESETS, Augmentation

AugmentationLike: TypeAlias = Augmentation | Literal["finetune", "ijepa", "stop", "none"]
AUGMENTATIONS = {"finetune": Augmentation(crop_scale=(0.08, 1.0), flip=0.5), **PRESETS}

# Settings that may change when a run is resumed, because they do not change what is computed.
FREE_ON_RESUME = ("accelerator", "devices", "num_nodes", "strategy", "workers", "checkpoint_every")


@dataclass(frozen=True, kw_only=True)
class Finetuning:
    """The settings of `finetune`, which documents them; None means that the value is still to be chosen."""

    image_size: SizeLike | None
    pooling: Pooling | None
    fraction: float
    image_list: str | Path | None
    held_out: float
    augmentation: AugmentationLike
    epochs: float
    batch_size: int | None
    lr: float | None
    start_lr: float
    final_lr: float
    warmup_epochs: float | None
    layer_decay: float
    weight_decay: float
    betas: tuple[float, float]
    clip_grad: float | None
    drop_path: float | None
    label_smoothing: float
    mixup: float
    seed: int
    precision: Precision | None
    accelerator: str
    devices: int | str
    num_nodes: int
    strategy: str
    workers: int | None
    log_every: int
    checkpoint_every: int | None

    def __post_init__(self) -> None:
        for name, (least, most, with_least, with_most) in _RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            above = value >= least if with_least else value > least
            below = value <= most if with_most else value < most
            if not (above and below):
                limits = f"{'at least' if with_least else 'more than'} {least:g}"
                if most < math.inf:
                    limits += f" and {'at most' if with_most else 'less than'} {most:g}"
                raise UserError(f"{name}={value} must be {limits}.")
        if not isinstance(self.augmentation, Augmentation) and self.augmentation not in AUGMENTATIONS:
            raise UserError(f"augmentation={self.augmentation} is not known. Use one of: {', '.join(AUGMENTATIONS)}.")


# name: (least, most, whether the least is allowed itself, whether the most is)
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
