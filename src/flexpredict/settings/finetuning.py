"""How an encoder is fine-tuned."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from flexpredict.errors import UserError
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.settings.extraction import Pooling, SizeLike
from flexpredict.settings.ranges import Range, check_ranges
from flexpredict.settings.recipe import Precision

AugmentationLike: TypeAlias = Augmentation | Literal["finetune", "ijepa", "stop", "none"]
AUGMENTATIONS = {"finetune": Augmentation(crop_scale=(0.08, 1.0), flip=0.5), **PRESETS}

# Settings that may change when a run is resumed, because they do not change what is computed.
FREE_ON_RESUME = ("accelerator", "devices", "num_nodes", "strategy", "workers", "checkpoint_every")


def _within(**bounds: float) -> Any:
    """A field without a default, and its range."""
    return field(metadata={"range": Range(**bounds)})


@dataclass(frozen=True, kw_only=True)
class Finetuning:
    """The settings of `finetune`, which documents them; None means that the value is still to be chosen."""

    image_size: SizeLike | None
    pooling: Pooling | None
    fraction: float = _within(above=0, most=1)
    image_list: str | Path | None
    held_out: float = _within(least=0, below=1)
    augmentation: AugmentationLike
    epochs: float = _within(above=0)
    batch_size: int | None = _within(least=1)
    lr: float | None = _within(above=0)
    start_lr: float = _within(least=0, most=1)
    final_lr: float = _within(least=0, most=1)
    warmup_epochs: float | None = _within(least=0)
    layer_decay: float = _within(above=0, most=1)
    weight_decay: float = _within(least=0)
    betas: tuple[float, float] = _within(least=0, below=1)
    clip_grad: float | None = _within(above=0)
    drop_path: float | None = _within(least=0, below=1)
    label_smoothing: float = _within(least=0, below=1)
    mixup: float = _within(least=0)
    seed: int = _within(least=0)
    precision: Precision | None
    accelerator: str
    devices: int | str
    num_nodes: int = _within(least=1)
    strategy: str
    workers: int | None = _within(least=0)
    log_every: int = _within(least=1)
    checkpoint_every: int | None = _within(least=1)

    def __post_init__(self) -> None:
        check_ranges(self)
        if not isinstance(self.augmentation, Augmentation) and self.augmentation not in AUGMENTATIONS:
            raise UserError(f"augmentation={self.augmentation} is not known. Use one of: {', '.join(AUGMENTATIONS)}.")
