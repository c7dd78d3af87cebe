"""Two sets of defaults: the published ones, and those for runs of minutes to days on modest data.

The published recipe needs hundreds of millions of images before its features are worth having; a run that sees a few
hundred thousand learns next to nothing by it. What a small run needs instead was searched for on the training images
of CIFAR-10 and on the built-in scenes (studies/).
"""

from dataclasses import fields, replace
from typing import Any

from flexpredict.settings.augmentation import PRESETS, Augmentation
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
        "ema_momentum": 0.996,
    },
    "small": {
        "kind": "muon",  # learns as much in half the time
        "lr": 3e-3,
        "start_lr": 0.0,
        "final_lr": 0.01,
        "weight_decay": 0.05,  # 0.4 belongs to hundreds of epochs
        "final_weight_decay": 0.05,
        "ema_momentum": 0.99,  # 0.996 hardly moves in a thousand steps, 0.97 collapses
    },
}
_AUGMENTATION: dict[Scale, Augmentation] = {
    "published": PRESETS["stop"],
    "small": Augmentation(flip=0.5),  # blur and grayscale hide what little a small model can tell
}


def scale_of(recipe: Recipe, images: float) -> Scale:
    """Which defaults a run is to have that sees so many images."""
    if recipe.scale is not None:
        return recipe.scale
    # Other methods have defaults of their own, and weights that are good already want the gentler ones.
    small = images < SMALL_RUN and recipe.method == "ijepa" and recipe.init_from is None
    return "small" if small else "published"


def with_defaults(recipe: Recipe, scale: Scale, lr: float) -> Recipe:
    """The recipe with what it leaves open set to the defaults of this scale. lr: the published learning rate."""
    targets: dict[str, Any] = {"standardize": "feature" if scale == "small" else "none"}
    return replace(
        recipe,
        scale=scale,
        optimizer=_filled(recipe.optimizer, {"lr": lr, **_OPTIMIZER[scale]}),
        targets=_filled(recipe.targets, targets if recipe.method == "ijepa" else {}),
        positions=_noise(recipe.positions, scale),
        augmentation=augmentation_of(recipe, scale),
    )


def augmentation_of(recipe: Recipe, scale: Scale) -> Augmentation:
    chosen = recipe.augmentation
    if chosen is None:
        return _AUGMENTATION[scale]
    return chosen if isinstance(chosen, Augmentation) else PRESETS[chosen]


def _noise(positions: Positions, scale: Scale) -> Positions:
    if positions.kind != "stochastic" or (positions.noise_std, positions.noise_to_signal) != (None, None):
        return positions
    # At the paper's ratio of 0.2 the noise never moves a token to another place.
    return replace(positions, noise_to_signal=0.5) if scale == "small" else replace(positions, noise_std=0.25)


def _filled(settings: Any, values: dict[str, Any]) -> Any:
    open_fields = {field.name for field in fields(settings) if getattr(settings, field.name) is None}
    return replace(settings, **{name: value for name, value in values.items() if name in open_fields})
