"""Frozen features of all images of a source: extracted once, kept by content, continued after an interruption."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batches
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import cache_folder, digest
from flexpredict.encoders.frozen import FrozenEncoder, Pooling
from flexpredict.errors import UserError
from flexpredict.files import write_atomically
from flexpredict.progress import Counting

# Another number whenever the same settings would give other features.
_VERSION = "1"
_PART = 2048  # images: what is lost when extraction is interrupted
_MOST_UNREADABLE = 0.05
_PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class Extraction:
    """How features are made.

    Args:
        layers: last layers whose features stand side by side.
        pooling: "mean" of the patches, or "class" token (by default the encoder's own way).
        image_size: height and width (by default what the encoder was trained at).
        batch_size: images at a time.
        precision: "32-true" or "bf16-mixed".
        workers: processes that read images.
    """

    layers: int = 1
    pooling: Pooling | None = None
    image_size: tuple[int, int] | None = None
    batch_size: int = 64
    precision: str = "32-true"
    workers: int = 0

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            raise UserError(f"precision is '{self.precision}'; use one of: {', '.join(_PRECISIONS)}.")
        if self.workers < 0:
            raise UserError(f"workers is {self.workers}; use 0 or more.")

    def describe(self, encoder: FrozenEncoder) -> dict[str, Any]:
        """For the protocol of a result."""
        height, width = self.image_size or encoder.image_size
        return {
            "fingerprint": encoder.fingerprint(),
            "layers": self.layers,
            "pooling": encoder.pooling_in_words(self.pooling),
            "image_size": f"{height}x{width}",
            "crop": "largest centred",
            "precision": self.precision,
        }

    def settings(self, encoder: FrozenEncoder) -> str:
        """What is not as usual, in words: "last 4 layers, class pooling, 256x192", or nothing."""
        size = self.image_size or encoder.image_size
        unusual = {
            f"last {self.layers} layers": self.layers != 1,
            f"{self.pooling} pooling": self.pooling not in (None, encoder.pooling_in_words(None)),
            f"{size[0]}x{size[1]}": size != encoder.image_size,
        }
        return ", ".join(words for words, said in unusual.items() if said)


@dataclass
class Features:
    """One vector for each image that could be read."""

    vectors: Tensor  # n D float32
    indices: Tensor  # n int64, of the images in their source
    skipped: list[UnreadableImage] = field(default_factory=list)


@torch.no_grad()
def extract_features(
    encoder: FrozenEncoder,
    source: ImageSource,
    how: Extraction | None = None,
    *,
    first: int = 0,
    last: int | None = None,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda count: None,
) -> Features:
    """Features of images first … last - 1 (all by default) of a source, in its order, on the CPU."""
    how = how or Extraction()
    encoder.eval().to(device)
    kind = torch.device(device).type
    vectors, indices, skipped = [], [], []
    size = how.image_size or encoder.image_size
    batches = evaluation_batches(source, size, how.batch_size, first=first, last=last, workers=how.workers)
    for batch in batches:
        skipped += batch.skipped
        if len(batch.images):
            with torch.autocast(kind, torch.bfloat16, enabled=how.precision == "bf16-mixed"):
                pooled = encoder.pooled(batch.images.to(device), how.layers, how.pooling).float().cpu()
            require_finite(pooled, encoder, source.describe, batch.indices)
            vectors.append(pooled)
            indices.append(batch.indices)
        advance(len(batch.images) + len(batch.skipped))
    return _joined(vectors, indices, skipped)


def require_finite(vectors: Tensor, encoder: FrozenEncoder, describe: Callable[[int], str], indices: Tensor) -> None:
    """vectors: B D, of the images with these indices (B), which `describe` names."""
    bad = ~torch.isfinite(vectors).all(dim=1)
    if bad.any():
        raise UserError(
            f"{encoder.what} gives NaN or infinity for {int(bad.sum())} of {len(bad)} images, the first is "
            f"{describe(int(indices[bad][0]))}: it diverged or overflowed (try --precision 32-true)."
        )


def _joined(vectors: list[Tensor], indices: list[Tensor], skipped: list[UnreadableImage]) -> Features:
    """Of parts, some of which may hold nothing that could be read, and then no width either."""
    vectors = [part for part in vectors if len(part)]
    return Features(
        torch.cat(vectors) if vectors else torch.empty(0, 0),
        torch.cat([torch.empty(0, dtype=torch.int64), *indices]),
        skipped,
    )


def cached_features(
    encoder: FrozenEncoder,
    source: ImageSource,
    how: Extraction,
    fabric: Fabric,
    console: Console,
) -> Features:
    """Features of a whole source, on every rank. Ranks share the work; parts that are done are not done again.

    They are kept under the weights of the encoder, the images and all settings, so another protocol with the same
    features costs no more than reading them.
    """
    # On every rank, before any work: one that is refused alone would leave the others waiting.
    height, width = how.image_size or encoder.image_size
    encoder.check_size((height, width))
    encoder.check_layers(how.layers)
    if how.pooling is not None and fabric.world_size > 1:  # whether it has a class token shows only then
        with torch.no_grad():
            blank = torch.zeros(1, 3, height, width, dtype=torch.uint8, device=next(encoder.parameters()).device)
            encoder.eval().pooled(blank, how.layers, how.pooling)
    described = how.describe(encoder)
    key = digest([_VERSION, json.dumps(described, sort_keys=True), source.fingerprint(), str(len(source))])
    folder = cache_folder() / "features" / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Features are kept in {folder}, which cannot be made: {error.strerror}. Set FLEXPREDICT_CACHE to a "
            "folder that can be written to."
        ) from error
    starts = range(0, len(source), _PART)
    missing = [start for start in starts if not _is_whole(_path(folder, start))]
    fabric.barrier()  # what is missing is shared out by the same list: nobody adds to it before all have made theirs
    done = len(source) - sum(min(_PART, len(source) - start) for start in missing)
    with Counting(console, f"features of {source.name}", "images", len(source), done=done) as counting:
        for start in missing[fabric.global_rank :: fabric.world_size]:
            stop = min(start + _PART, len(source))
            part = extract_features(
                encoder,
                source,
                how,
                first=start,
                last=stop,
                device=fabric.device,
                # Of the other ranks' work nothing is heard: what this one does stands for all.
                advance=lambda count: counting.add(count * fabric.world_size),
            )
            _save(_path(folder, start), part)
    fabric.barrier()
    parts = [_load(_path(folder, start)) for start in starts]
    features = _joined(
        [part.vectors for part in parts],
        [part.indices for part in parts],
        [failure for part in parts for failure in part.skipped],
    )
    require_readable(source, features.skipped)
    return features


def require_readable(source: ImageSource, skipped: list[UnreadableImage]) -> None:
    """Refuse a source of which too much was skipped."""
    if len(skipped) > _MOST_UNREADABLE * len(source):
        raise UserError(
            f"{len(skipped)} of {len(source)} images of {source.name} could not be read, for example "
            f"{skipped[0]}. Numbers on the rest would not be comparable: mend or remove the files."
        )


def _save(path: Path, part: Features) -> None:
    skipped = json.dumps([[failure.name, failure.reason] for failure in part.skipped])
    tensors = {"vectors": part.vectors.contiguous(), "indices": part.indices}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, {"skipped": skipped}))


def _load(path: Path) -> Features:
    try:
        with safe_open(path, framework="pt") as file:
            skipped = [UnreadableImage(*failure) for failure in json.loads(file.metadata()["skipped"])]
            return Features(file.get_tensor("vectors"), file.get_tensor("indices"), skipped)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"The features in {path} are gone since they were made: {error}. If several machines share the work, set "
            "FLEXPREDICT_CACHE to a folder that all of them see."
        ) from error


def _is_whole(path: Path) -> bool:
    """Without reading it: the file knows how long it should be."""
    try:
        with safe_open(path, framework="pt"):
            return True
    except (OSError, SafetensorError):
        return False


def _path(folder: Path, start: int) -> Path:
    return folder / f"part-{start:09d}.safetensors"
