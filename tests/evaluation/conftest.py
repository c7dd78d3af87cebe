"""For the tests of evaluations."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_davis import FRAMES, NAMES, SIZE

from flexpredict.data.scenes.scenes import draw_videos
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.evaluation.index_masks import write_mask
from flexpredict.model.building import build_encoder


@pytest.fixture(scope="session")
def encoder() -> ViTEncoder:
    """An untrained transformer of two blocks."""
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    vit = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=options)
    return ViTEncoder(vit, "tiny", "a tiny one").eval()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two little videos as a DAVIS tree."""
    root = tmp_path / "DAVIS"
    videos = draw_videos(np.arange(len(NAMES)), frames=FRAMES, size=(SIZE, SIZE + 16))
    for name, images, masks in zip(NAMES, videos.images, videos.masks, strict=True):
        for folder in ("JPEGImages", "Annotations"):
            (root / folder / "480p" / name).mkdir(parents=True)
        for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
            Image.fromarray(image).save(root / "JPEGImages" / "480p" / name / f"{number:05d}.jpg", quality=95)
            write_mask(mask, root / "Annotations" / "480p" / name / f"{number:05d}.png")
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("\n".join(NAMES) + "\n")
    return root
