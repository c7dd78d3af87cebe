"""A run small enough for a test: 48 pictures of 32 pixels, a transformer of two blocks."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from flexpredict.randomness import sample_keys, uniform

RECIPE: dict[str, Any] = {
    "scale": "published",  # whose numbers the tests know
    "model": "vit_tiny_patch16_224",
    "model_options": {"embed_dim": 24, "depth": 2, "num_heads": 2},
    "image_size": 32,
    "patch_size": 4,
    "predictor": {"dim": 16, "depth": 2, "heads": 2},
    "batch_size": 8,
    "epochs": 3,
    "log_every": 2,
    "checkpoint_every": 3,
    "accelerator": "cpu",
    "precision": "32-true",  # so that sums in another order agree on any processor
    "devices": 1,
}


def write_pictures(folder: Path, count: int = 48, size: int = 40) -> Path:
    """Smooth random pictures as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        small = uniform(sample_keys(1, torch.tensor([index])), 48).view(4, 4, 3).mul(255).byte().numpy()
        Image.fromarray(np.ascontiguousarray(small)).resize((size, size), Image.Resampling.BICUBIC).save(
            folder / f"{index:03d}.png"
        )
    return folder
