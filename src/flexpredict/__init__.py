"""Self-supervised pre-training of vision transformers with stochastic positional embeddings (StoP)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexpredict.api import *  # noqa: F403
    from flexpredict.encoders.opening import load as load
    from flexpredict.model.positions import StochasticPositions as StochasticPositions

__version__ = "0.1.0"

_API = "flexpredict.api"
# Public names that need torch, and where they are. All others are in flexpredict.api.
_WITH_TORCH = {"load": "flexpredict.encoders.opening", "StochasticPositions": "flexpredict.model.positions"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import flexpredict` and help pages stay quick."""
    if name == "__all__":
        return sorted([*import_module(_API).__all__, *_WITH_TORCH])
    if name.startswith("__") or (name not in _WITH_TORCH and name not in import_module(_API).__all__):
        raise AttributeError(f"module 'flexpredict' has no attribute '{name}'")
    return getattr(import_module(_WITH_TORCH.get(name, _API)), name)


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]
