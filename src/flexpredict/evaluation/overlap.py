"""Looks for test images among the training images, by content, before any work."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.cores import cores
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, evenly_spaced
from flexpredict.progress import Counting
from flexpredict.showing import say
from flexpredict.training.engine import gather, on_first_rank

_MOST = 20_000  # images of each set that are compared; of a larger set, evenly spaced ones


def warn_of_overlap(train: ImageSource, test: ImageSource, fabric: Fabric, console: Console) -> str:
    """A sentence for the protocol, which is said on the console at once; empty if no image is in both."""
    found: list[str] = []
    on_first_rank(fabric, lambda: found.append(overlap(train, test, console)))
    sentence = gather(fabric, found)[0][0]
    if sentence:
        say(console, f"WARNING: {sentence}")
    return sentence


def overlap(train: ImageSource, test: ImageSource, console: Console) -> str:
    """How many test images are also training images, in a sentence; of large sets a sample is compared."""
    if train.fingerprint() == test.fingerprint():
        return f"All {len(test):,} test images are also training images."
    known = set(_contents(train, console))
    asked = _contents(test, console)
    count = sum(content in known for content in asked)
    if not count:
        return ""
    if max(len(train), len(test)) <= _MOST:
        return f"{count:,} of {len(test):,} test images are also training images."
    return f"At least {count:,} of {len(asked):,} test images that were compared are also training images."


def _contents(source: ImageSource, console: Console) -> list[bytes]:
    """A digest of each image as it is stored; images that cannot be read have none."""
    indices = evenly_spaced(len(source), _MOST)
    contents = []
    with (
        Counting(console, f"comparing {source.name}", "images", len(indices)) as counting,
        ThreadPoolExecutor(cores()) as pool,
    ):
        for content in pool.map(partial(_content, source), indices):
            contents += [] if content is None else [content]
            counting.add(1)
    return contents


def _content(source: ImageSource, index: int) -> bytes | None:
    try:
        stored = source.encoded(index)
        stored = Path(stored).read_bytes() if isinstance(stored, str) else stored
    except (OSError, UnreadableImage):
        return None
    return hashlib.blake2b(stored if isinstance(stored, bytes) else stored.tobytes(), digest_size=16).digest()
