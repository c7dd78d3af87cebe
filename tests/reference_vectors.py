"""What the authors' own code computes for small random models (reference/README.md)."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_REFERENCE = Path(__file__).parent / "reference"


def reference_sizes(folder: str) -> dict[str, int]:
    return json.loads((_REFERENCE / folder / "model.json").read_text())


def reference_checkpoint(folder: str) -> Path:
    """A file as the authors release them."""
    return _REFERENCE / folder / "checkpoint.pth.tar"


def reference_vectors(folder: str) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in np.load(_REFERENCE / folder / "vectors.npz").items()}
