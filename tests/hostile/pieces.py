"""What hostile files are made of, and what is said of each."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from flexpredict.randomness import sample_keys, stream_key, uniform

Files = dict[str, bytes]  # name -> content
Kinds = dict[Callable[[], Files], str]  # what makes the files of a kind, and the reason why they cannot be read

READABLE = ""
FOREIGN = r"not an image"
TOO_LARGE = r"pixels|too (large|big|many|long)|exceeds"
BROKEN = r"broken|cut (off|short)|truncated|cannot be decoded"

FORMATS = {
    ".jpg": "JPEG",
    ".png": "PNG",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".ppm": "PPM",
    ".avif": "AVIF",
}


@dataclass(frozen=True)
class Hostile:
    """One file (or member, or row), and what should become of it."""

    path: str  # below the folder; as `os.fsdecode` gives it, for not every name is UTF-8
    kind: str
    reason: str  # regular expression, whatever the case, that is found in why it cannot be read; READABLE if it can

    @property
    def readable(self) -> bool:
        return not self.reason


def random_bytes(what: str, count: int) -> bytes:
    return uniform(torch.tensor([stream_key(0, what)]), count).mul(256).byte().numpy().tobytes()


def picture(width: int = 48, height: int = 32, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A new one each time, for PIL leaves the options of saving on an image."""
    coarse = uniform(sample_keys(stream_key(seed, "hostile picture"), torch.arange(4)), 12).view(4, 4, 3)
    image = Image.fromarray(coarse.mul(256).byte().numpy()).resize((width, height), Image.Resampling.BICUBIC)
    return image.convert(mode)


def saved(format: str, image: Image.Image | None = None, **options: Any) -> bytes:
    stream = io.BytesIO()
    (image or picture()).save(stream, format, **options)
    return stream.getvalue()


def cuts(content: bytes, suffix: str, *fractions: float) -> Files:
    """What is left always begins with the whole signature of its format."""
    lengths = [max(16, int(len(content) * fraction)) for fraction in fractions]
    return {f"first {length} bytes{suffix}": content[:length] for length in lengths}


def patched(content: bytes, offset: int, *, put: bytes) -> bytes:
    return content[:offset] + put + content[offset + len(put) :]
