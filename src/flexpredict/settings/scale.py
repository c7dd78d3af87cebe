"""Three sets of defaults: published, continued from other weights, and small (minutes to days, modest data).

The published recipe needs hundreds of millions of images before its features are useful; a run that sees a few
hundred thousand learns next to nothing from it. The defaults of small runs were searched for on the training images
of CIFAR-10 and on the built-in scenes (studies/).
"""

import math
from dataclasses import fields, replace
from typing import Any

from flexpredict.settings.augmentation import PRESETS, Augmentation, chosen_augmentation
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import Recipe, Scale

SMALL_RUN = 5_000_000  # images seen, below which a run is small: a hundred epochs of CIFAR-10

_OPTIMIZER: dict[Scale, dict[str, Any]] = {
    "published": {
        "kind": "adamw",
        "start_lr": 0.25,
        "final_lr": 0.00125,
        "weight_decay": 0.04,
        "final_weight_decay": 0.4,
        "encoder_lr": 1.0,
        "ema_momentum": 0.996,
    },
    "continued": {
        "kind": "adamw",
        "lr": 1e-3,  # a new predictor has everything to learn
        "encoder_lr": 0.01,  # and a good encoder much to forget: 5e-5 costs it six points
        "start_lr": 0.0,
        "final_lr": 0.01,
        "weight_decay": 0.05,
        "final_weight_decay": 0.05,
        "ema_momentum": 0.999,
    },
    "small": {
        "kind": "muon",  # five points more than AdamW at its best rate (studies/lr-cifar10)
        "lr": 3e-3,
        "start_lr": 0.0,
        "final_lr": 0.01,
        "weight_decay": 0.05,  # 0.4 is for hundreds of epochs
        "final_weight_decay": 0.05,
        "encoder_lr": 1.0,
        "ema_momentum": 0.99,  # 0.996 hardly moves in a thousand steps (studies/combined-cifar10)
    },
}
_AUGMENTATION: dict[Scale, Augmentation] = {
    "published": PRESETS["stop"],
    "continued": Augmentation(flip=0.5),
    "small": Augmentation(flip=0.5),  # blur and grayscale gain nothing (studies/augmentation-cifar10)
}


def scale_of(recipe: Recipe, images: float) -> Scale:
    """The set of defaults for a run that sees this many images."""
    if recipe.scale is not None:
        return recipe.scale
    if recipe.init_from is not None:
        return "continued"
    if recipe.method == "data2vec":  # defaults for its small runs were not searched for
        return "published"
    return "small" if images < SMALL_RUN else "published"


def published_lr(batch_size: int) -> float:
    """The paper's learning rate, scaled to this batch size."""
    return max(8e-4 * math.sqrt(batch_size / 2048), 5e-4)


def with_defaults(recipe: Recipe, scale: Scale, lr: float) -> Recipe:
    """The recipe with open settings filled in by the defaults of this scale. lr: the published learning rate."""
    targets: dict[str, Any] = {"standardize": "none" if scale == "published" else "feature"}
    return replace(
        recipe,
        scale=scale,
        optimizer=_filled(recipe.optimizer, {"lr": lr, **_OPTIMIZER[scale]}),
        targets=_filled(recipe.targets, targets if recipe.method == "ijepa" else {}),
        positions=_noise(recipe.positions.of(recipe.method), scale),
        augmentation=augmentation_of(recipe, scale),
    )


def augmentation_of(recipe: Recipe, scale: Scale) -> Augmentation:
    return chosen_augmentation(recipe.augmentation, _AUGMENTATION[scale])


def _noise(positions: Positions, scale: Scale) -> Positions:
    if not positions.stochastic or (positions.noise_std, positions.noise_to_signal) != (None, None):
        return positions
    # At the paper's ratio of 0.2 the noise never moves a token to another position.
    return replace(positions, noise_std=0.25) if scale == "published" else replace(positions, noise_to_signal=0.5)


def _filled(settings: Any, values: dict[str, Any]) -> Any:
    open_fields = {field.name for field in fields(settings) if getattr(settings, field.name) is None}
    return replace(settings, **{name: value for name, value in values.items() if name in open_fields})
