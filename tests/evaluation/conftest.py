"""For the tests of evaluations."""

import pytest

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.model.building import build_encoder


@pytest.fixture(scope="session")
def encoder() -> ViTEncoder:
    """An untrained transformer of two blocks."""
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    vit = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=options)
    return ViTEncoder(vit, "tiny", "a tiny one").eval()
