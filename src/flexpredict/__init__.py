"""Self-supervised pre-training of vision transformers with stochastic positional embeddings (StoP)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexpredict.encoder_file import load_encoder
    from flexpredict.positions import StochasticPositions
    from flexpredict.pretraining import pretrain

__version__ = "0.1.0"
__all__ = ["StochasticPositions", "load_encoder", "pretrain"]

_HOMES = {
    "StochasticPositions": "flexpredict.positions",
    "load_encoder": "flexpredict.encoder_file",
    "pretrain": "flexpredict.pretraining",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import flexpredict` and `flexpredict --help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'flexpredict' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
