"""Finds test images that are also training images, or that the encoder has seen in its pre-training.

Neither is refused; both are reported with the numbers.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.cores import cores
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource, content_digest, evenly_spaced
from flexpredict.data.sources.opening import is_path, open_data
from flexpredict.data.sources.streams import is_stream
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.progress import Counting
from flexpredict.showing import say
from flexpredict.training.engine import on_first_rank

_MOST = 20_000  # images of each set that are compared; of a larger set, evenly spaced ones


def shared_images(
    encoder: ImageEncoder, train: ImageSource, test: ImageSource, fabric: Fabric, console: Console
) -> dict[str, str]:
    """A sentence about each for the protocol, empty if there are none. Sentences are also printed as warnings."""

    def find() -> dict[str, str]:
        seen = seen_in_pretraining(encoder.pretrained_on, train, test, console)
        return {"overlap": overlap(train, test, console), "seen_in_pretraining": seen}

    found = on_first_rank(fabric, find)
    for sentence in filter(None, found.values()):
        say(console, f"WARNING: {sentence}")
    return found


def overlap(train: ImageSource, test: ImageSource, console: Console) -> str:
    """How many test images are also training images, in a sentence; of large sets a sample is compared."""
    shared = _shared(train, test, console)
    return f"{shared} are also training images." if shared else ""


def seen_in_pretraining(names: tuple[str, ...], train: ImageSource, test: ImageSource, console: Console) -> str:
    """How many test images are in the pre-training data `names`, in a sentence; empty if that cannot be opened.

    Only local files are opened: other data would have to be downloaded, or drawn again.
    train: of the evaluation. If it is all of the pre-training data, `overlap` already reports shared images.
    """
    if not names or not all(map(is_path, names)):
        return ""
    try:
        seen = open_data(list(names), console)
    except (UserError, OSError):  # they may have been moved, or belong to somebody else
        return ""
    if is_stream(seen) or _same(seen, train):
        return ""
    shared = _shared(seen, test, console)
    return f"{shared} were seen in pre-training, without labels." if shared else ""


def _shared(others: ImageSource, test: ImageSource, console: Console) -> str:
    """The subject of a sentence, such as "3 of 60 test images"; empty if no image is in both."""
    if _same(others, test):
        return f"All {len(test):,} test images"
    known = set(_contents(others, console))
    asked = _contents(test, console)
    count = sum(content in known for content in asked)
    if not count:
        return ""
    if max(len(others), len(test)) <= _MOST:
        return f"{count:,} of {len(test):,} test images"
    return f"At least {count:,} of {len(asked):,} test images that were compared"


def _same(one: ImageSource, other: ImageSource) -> bool:
    # A fingerprint looks at every file of a folder, so lengths are compared first.
    return len(one) == len(other) and one.fingerprint() == other.fingerprint()


def _contents(source: ImageSource, console: Console) -> list[bytes]:
    """A digest of each image as it is stored; images that cannot be read are left out."""
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
    found = source.record(index)
    try:
        return None if isinstance(found, UnreadableImage) else content_digest(found.content())
    except UnreadableImage:
        return None
