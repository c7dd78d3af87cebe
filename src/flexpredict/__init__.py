"""Self-supervised pre-training of vision transformers with stochastic positional embeddings (StoP)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexpredict.encoders.opening import open_encoder as load
    from flexpredict.model.positions import StochasticPositions
    from flexpredict.pretraining import pretrain

__version__ = "0.1.0"
__all__ = ["StochasticPositions", "load", "pretrain"]

_HOMES = {
    "StochasticPositions": ("flexpredict.model.positions", "StochasticPositions"),
    "load": ("flexpredict.encoders.opening", "open_encoder"),
    "pretrain": ("flexpredict.pretraining", "pretrain"),
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import flexpredict` and `flexpredict --help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'flexpredict' has no attribute '{name}'")
    module, known_as = _HOMES[name]
    return getattr(import_module(module), known_as)
