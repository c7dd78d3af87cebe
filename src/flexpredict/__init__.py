"""Self-supervised pre-training of vision transformers with stochastic positional embeddings (StoP)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexpredict.api import (
        Run,
        ablate,
        analyze,
        embed,
        evaluate_clevr,
        evaluate_davis,
        evaluate_depth,
        evaluate_location,
        evaluate_segmentation,
        export,
        finetune,
        inspect,
        pack,
        plan,
        pretrain,
        probe,
        report,
        serve,
        similar,
        transfer,
    )
    from flexpredict.encoders.opening import open_encoder as load
    from flexpredict.errors import UserError
    from flexpredict.model.positions import StochasticPositions
    from flexpredict.settings.augmentation import Augmentation
    from flexpredict.settings.masking import Masking
    from flexpredict.settings.optimizer import Optimizer
    from flexpredict.settings.positions import Positions
    from flexpredict.settings.recipe import PredictorSize, Recipe
    from flexpredict.settings.targets import Targets

__version__ = "0.1.0"
__all__ = [
    "Augmentation",
    "Masking",
    "Optimizer",
    "Positions",
    "PredictorSize",
    "Recipe",
    "Run",
    "StochasticPositions",
    "Targets",
    "UserError",
    "ablate",
    "analyze",
    "embed",
    "evaluate_clevr",
    "evaluate_davis",
    "evaluate_depth",
    "evaluate_location",
    "evaluate_segmentation",
    "export",
    "finetune",
    "inspect",
    "load",
    "pack",
    "plan",
    "pretrain",
    "probe",
    "report",
    "serve",
    "similar",
    "transfer",
]

# Where the others are that are not in flexpredict.api.
_HOMES = {
    "Augmentation": "settings.augmentation",
    "Masking": "settings.masking",
    "Optimizer": "settings.optimizer",
    "Positions": "settings.positions",
    "PredictorSize": "settings.recipe",
    "Recipe": "settings.recipe",
    "StochasticPositions": "model.positions",
    "Targets": "settings.targets",
    "UserError": "errors",
    "open_encoder": "encoders.opening",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import flexpredict` and help pages stay quick."""
    if name not in __all__:
        raise AttributeError(f"module 'flexpredict' has no attribute '{name}'")
    known_as = {"load": "open_encoder"}.get(name, name)
    return getattr(import_module(f"flexpredict.{_HOMES.get(known_as, 'api')}"), known_as)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
