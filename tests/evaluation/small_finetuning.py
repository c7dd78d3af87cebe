"""Fine-tuning small enough for tests: 200 scenes of 32 pixels, a transformer of two blocks, 18 steps."""

from pathlib import Path
from typing import Any

import pytest

from flexpredict.data.sources.opening import ImageSource, open_source
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning import finetune
from flexpredict.model.building import build_encoder

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "fraction": 0.24,
    "mixup": 0.8,
    "accelerator": "cpu",
    "precision": "32-true",
    "devices": 1,
    "log_every": 2,
    "checkpoint_every": 5,
}


def tiny_encoder() -> ImageEncoder:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=options)
    return ViTEncoder(encoder, "runs/tiny", "target encoder of runs/tiny").eval()


def scenes(split: str = "train", count: int = 200) -> ImageSource:
    return open_source(f"scenes:{count},size=32,split={split}")


def refused(out: Path, test: ImageSource | None = None, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        finetune(tiny_encoder(), scenes(), test or scenes("test", 60), out=out, **SETTINGS | changes)
    return str(caught.value)
