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
from flexpredict.data.image_source import ImageSource
from flexpredict.data.listing import cache_folder, digest
from flexpredict.data.loader import evaluation_batches
from flexpredict.errors import UserError
from flexpredict.evaluation.encoders import FrozenEncoder, Pooling
from flexpredict.files import write_atomically
from flexpredict.progress import Counting

# Another number whenever the same settings would give other features.
_VERSION = "1"
_PART = 2048  # images: what is lost when extraction is interrupted
_MOST_UNREADABLE = 0.05


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

    def describe(self, encoder: FrozenEncoder) -> dict[str, Any]:
        """For the protocol of a result."""
        height, width = self.image_size or encoder.image_size
        return {
            "fingerprint": encoder.fingerprint(),
            "layers": self.layers,
            "pooling": self.pooling or encoder.pooling,
            "image_size": f"{height}x{width}",
            "crop": "largest centred",
            "precision": self.precision,
        }


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
        with torch.autocast(kind, torch.bfloat16, enabled=how.precision == "bf16-mixed"):
            vectors.append(encoder.pooled(batch.images.to(device), how.layers, how.pooling).float().cpu())
        indices.append(batch.indices)
        skipped += batch.skipped
        advance(len(batch.images) + len(batch.skipped))
    return Features(torch.cat(vectors), torch.cat(indices), skipped)


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
    encoder.check_size(how.image_size or encoder.image_size)
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
    missing = [start for start in starts if _load(folder, start) is None]
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
            _save(folder, start, part)
    fabric.barrier()
    parts = [loaded for start in starts if (loaded := _load(folder, start)) is not None]
    features = Features(
        torch.cat([part.vectors for part in parts]),
        torch.cat([part.indices for part in parts]),
        [failure for part in parts for failure in part.skipped],
    )
    if len(features.skipped) > _MOST_UNREADABLE * len(source):
        raise UserError(
            f"{len(features.skipped)} of {len(source)} images of {source.name} could not be read, for example "
            f"{features.skipped[0]}. Numbers on the rest would not be comparable: mend or remove the files."
        )
    return features


def _save(folder: Path, start: int, part: Features) -> None:
    skipped = json.dumps([[failure.name, failure.reason] for failure in part.skipped])
    tensors = {"vectors": part.vectors.contiguous(), "indices": part.indices}
    write_atomically(_path(folder, start), lambda path: save_file(tensors, path, {"skipped": skipped}))


def _load(folder: Path, start: int) -> Features | None:
    try:
        with safe_open(_path(folder, start), framework="pt") as file:
            skipped = [UnreadableImage(*failure) for failure in json.loads(file.metadata()["skipped"])]
            return Features(file.get_tensor("vectors"), file.get_tensor("indices"), skipped)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None


def _path(folder: Path, start: int) -> Path:
    return folder / f"part-{start:09d}.safetensors"
