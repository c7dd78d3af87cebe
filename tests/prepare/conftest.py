"""For the tests of preparing data."""

from pathlib import Path

import pytest
from inspected_sources import write
from pictures import encoded as content
from pictures import smooth_picture as picture
from pictures import turned


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Every kind of image, each once, and some of them broken or copied."""
    jpeg = content(picture(90, 70, 3), "JPEG")
    frames = [picture(20, 30, seed).convert("P") for seed in (4, 5)]
    return write(
        tmp_path / "mixed",
        {
            "a.png": content(picture(40, 60, 1)),
            "b.jpg": jpeg,
            "c/gray.png": content(picture(50, 50, 2).convert("L")),
            "c/gray_as_rgb.jpg": content(picture(64, 48, 2).convert("L").convert("RGB"), "JPEG"),
            "c/turned.jpg": content(picture(33, 99, 6), "JPEG", exif=turned(6)),
            "c/upright.jpg": content(picture(33, 99, 7), "JPEG", exif=turned(1)),
            "d/animated.gif": content(frames[0], "GIF", save_all=True, append_images=frames[1:]),
            "d/copy_of_b.jpg": jpeg,
            "d/copy_of_b_again.jpeg": jpeg,
            "d/copy_of_a.png": content(picture(40, 60, 1)),
            "e/truncated.jpg": jpeg[: -len(jpeg) // 4],
            "e/truncated_too.jpg": jpeg[: -len(jpeg) // 5],
            "e/empty.png": b"",
            "e/text.png": b"this is not an image",
        },
    )
