"""A plan for fine-tuning, with every setting resolved."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from flexpredict.cores import cores
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning.classifier import drop_path_places
from flexpredict.settings.augmentation import Augmentation, chosen_augmentation
from flexpredict.settings.extraction import Pooling, one_image_size
from flexpredict.settings.finetuning import AUGMENTATIONS, Finetuning
from flexpredict.settings.recipe import Precision

_DROP_PATH = 0.1
_LR_AT_256 = 1e-3
_CHECKPOINTS_PER_RUN = 20


@dataclass(frozen=True, kw_only=True)
class FinetunePlan(Finetuning):
    """The settings, all resolved, and what follows from them."""

    image_size: tuple[int, int]
    pooling: Pooling
    augmentation: Augmentation
    batch_size: int
    lr: float
    warmup_epochs: float
    drop_path: float
    precision: Precision
    workers: int
    checkpoint_every: int
    samples: int  # in an epoch
    steps: int

    @property
    def warmup_steps(self) -> int:
        return min(round(self.warmup_epochs * self.samples / self.batch_size), self.steps)

    def checkpoint_due(self, step: int) -> bool:
        return step % self.checkpoint_every == 0 or step == self.steps

    def log_due(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.steps

    def epoch_done(self, step: int) -> bool:
        """Whether this step completes an epoch, or the run."""
        passed = step * self.batch_size // self.samples > (step - 1) * self.batch_size // self.samples
        return passed or step == self.steps

    def describe(self) -> dict[str, Any]:
        """All settings as plain values, for config.yaml."""
        values = {field.name: getattr(self, field.name) for field in fields(Finetuning)}
        values |= {
            "image_size": f"{self.image_size[0]}x{self.image_size[1]}",
            "augmentation": asdict(self.augmentation),
        }
        described: dict[str, Any] = json.loads(json.dumps(values, default=str))
        return described


def make_plan(
    settings: Finetuning, encoder: ImageEncoder, samples: int, device: torch.device, world_size: int
) -> FinetunePlan:
    """Choose what the settings leave open, except the precision. samples: number of training images."""
    on_gpu = device.type != "cpu"
    image_size = one_image_size(settings.image_size) or encoder.image_size
    encoder.check_size(image_size)
    # Mixup blends the images of a rank in pairs.
    unit = 2 * world_size if settings.mixup else world_size
    batch_size = settings.batch_size or max(1, min(256 if on_gpu else 64, samples) // unit) * unit
    if batch_size % unit:
        pairs = " in pairs, as mixup needs them" if settings.mixup else ""
        raise UserError(
            f"batch_size={batch_size} cannot be divided evenly among {world_size} device(s){pairs}. "
            f"Use batch_size={max(1, round(batch_size / unit)) * unit}."
        )
    steps = math.ceil(settings.epochs * samples / batch_size)
    usual_workers = min(8, max(1, cores() // world_size)) if on_gpu else 0
    chosen = {
        "image_size": image_size,
        "pooling": settings.pooling or encoder.pooling,
        "augmentation": chosen_augmentation(settings.augmentation, AUGMENTATIONS["finetune"], AUGMENTATIONS),
        "batch_size": batch_size,
        "warmup_epochs": settings.epochs / 10 if settings.warmup_epochs is None else settings.warmup_epochs,
        "lr": _LR_AT_256 * batch_size / 256 if settings.lr is None else settings.lr,
        "drop_path": _drop_path(settings, encoder),
        "workers": usual_workers if settings.workers is None else settings.workers,
        "checkpoint_every": settings.checkpoint_every or min(1000, math.ceil(steps / _CHECKPOINTS_PER_RUN)),
    }
    given = {field.name: getattr(settings, field.name) for field in fields(Finetuning)}
    return FinetunePlan(**given | chosen, samples=samples, steps=steps)


def _drop_path(settings: Finetuning, encoder: ImageEncoder) -> float:
    possible = bool(drop_path_places(encoder))
    if settings.drop_path and not possible:
        raise UserError(
            f"drop_path={settings.drop_path}, but {encoder.what} has no place for it: its blocks have no module of "
            "that name. Use drop_path=0."
        )
    if settings.drop_path is None:
        return _DROP_PATH if possible else 0.0
    return settings.drop_path
