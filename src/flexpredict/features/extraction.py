"""Frozen features of all images: extracted in parts, which several processes share, and cached by content."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, groupby

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batches
from flexpredict.data.passes import one_pass
from flexpredict.data.sources.image_source import ImageSource, Record, decode_row
from flexpredict.data.sources.listing import cache_folder, digest
from flexpredict.data.sources.streams import ImageStream, is_stream
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.features.encoding import PatchType, encode, feature_shape, require_finite
from flexpredict.features.parts import Part, PartsFolder, StoredPart, images_in_part
from flexpredict.progress import Counting
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.extraction import Extraction
from flexpredict.sizes import Size

# Change this whenever the same settings would give other features.
_VERSION = "2"
_MOST_UNREADABLE = 0.05


@dataclass
class Features:
    """One vector for each image that could be read."""

    vectors: Tensor  # n D float32
    indices: Tensor  # n int64, of the images in their source
    skipped: list[UnreadableImage] = field(default_factory=list)


def extract_features(
    encoder: ImageEncoder, source: ImageSource, how: Extraction | None = None, *, device: torch.device | str = "cpu"
) -> Features:
    """Features of all images of a source, in its order, on the CPU. Nothing is cached."""
    how = how or Extraction()
    batches = _source_batches(source, how.size_for(encoder), how, range(len(source)))
    part = encode_part(encoder, batches, how, device=device)
    return Features(part.features, part.indices, part.skipped)


def cached_features(
    encoder: ImageEncoder, source: ImageSource, how: Extraction, fabric: Fabric, console: Console
) -> Features:
    """Features of all images of a source, on every rank. Ranks share the work.

    They are cached by the weights of the encoder, the images and all settings, so another protocol with the same
    features only has to read them.
    """
    # On every rank, before any work: if one rank alone were refused, the others would wait for it forever.
    encoder.check_size(how.size_for(encoder))
    encoder.check_layers(how.layers)
    if how.pooling is not None and fabric.world_size > 1:  # Only a pass shows whether there is a class token.
        feature_shape(encoder, how)
    parts = _cached_parts(encoder, source, how, fabric)
    try:
        parts.folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Features are cached in {parts.folder.path}, which cannot be created: {error.strerror}. Set "
            "FLEXPREDICT_CACHE to a folder that can be written to."
        ) from error
    stored = make_parts(source, encoder, replace(how, layers=parts.layers), parts.folder, parts.size, fabric, console)
    # The features of a part without readable images have no width.
    filled = [part.tensor("features") for part in stored if part.facts["rows"]]
    if parts.layers > how.layers:
        filled = [features[:, -encoder.dim :] for features in filled]
    features = Features(
        torch.cat(filled) if filled else torch.empty(0, 0),
        torch.cat([torch.empty(0, dtype=torch.int64), *(part.tensor("indices") for part in stored)]),
        [failure for part in stored for failure in part.skipped()],
    )
    require_readable(source, features.skipped)
    return features


@dataclass(frozen=True)
class _CachedParts:
    """The cache for features of the last `layers` layers."""

    layers: int
    size: int  # images in each part but the last
    folder: PartsFolder

    def are_all_there(self, images: int) -> bool:
        return self.folder.path.is_dir() and len(self.folder.finished()) == math.ceil(images / self.size)


def _cached_parts(encoder: ImageEncoder, source: ImageSource, how: Extraction, fabric: Fabric) -> _CachedParts:
    """The cache for the features, or a complete cache of more layers, which contain the last one."""
    described, fingerprint = how.describe(encoder), source.fingerprint()

    def of_layers(layers: int) -> _CachedParts:
        size = images_in_part(4 * encoder.dim * layers)
        facts = [
            json.dumps({**described, "layers": layers}, sort_keys=True),
            fingerprint,
            str(len(source)),
            str(size),
        ]
        return _CachedParts(layers, size, PartsFolder(cache_folder() / "features" / digest([_VERSION, *facts])))

    own = of_layers(how.layers)
    if how.layers > 1 or not encoder.pools_layers_alike(how.pooling):
        return own
    places = (own, *map(of_layers, range(2, encoder.depth + 1)))
    kept = next((place.layers for place in places if place.are_all_there(len(source))), how.layers)
    return of_layers(fabric.broadcast(kept))  # the ranks must agree, and others may be making features right now


def require_readable(source: ImageSource, skipped: list[UnreadableImage]) -> None:
    """Refuse a source with too many unreadable images."""
    if len(skipped) > _MOST_UNREADABLE * len(source):
        raise UserError(
            f"{len(skipped)} of {len(source)} images of {source.name} could not be read, for example {skipped[0]}. "
            "Numbers on the rest would not be comparable: repair or remove the files."
        )


@dataclass(frozen=True)
class NamedBatch:
    first: int  # an image of the part that the batch belongs to
    images: Tensor  # b 3 H W uint8
    indices: Tensor  # b int64
    labels: Tensor  # b int64, -1 where an image has none
    names: list[str]
    skipped: list[UnreadableImage]


def make_parts(
    images: ImageSource | ImageStream,
    encoder: ImageEncoder,
    how: Extraction,
    parts: PartsFolder,
    size: int,
    fabric: Fabric,
    console: Console,
    patches: PatchType | None = None,
) -> list[StoredPart]:
    """Make the parts that are missing, and return all, in order. Several processes share the parts of a source.

    size: images in each part but the last. patches: keep the features of all patches too, as numbers of this type.
    """
    finished, image_size = parts.finished(), how.size_for(encoder)
    work: Iterable[tuple[int, Iterable[NamedBatch]]]
    if is_stream(images):
        # A part that is not full was the end of the stream, which may have grown since.
        full = {number for number in finished if parts.stored(number).images() == size}
        length = next(number for number in count() if number not in full)
        work = groupby(_stream_batches(images, image_size, how, size, range(length)), key=lambda b: b.first // size)
        total, done = images.length, length * size
    else:
        sections = [range(len(images))[start : start + size] for start in range(0, len(images), size)]
        missing = [number for number in range(len(sections)) if number not in finished]
        fabric.barrier()  # No process makes a part before all have looked: all must agree which are missing.
        mine = missing[fabric.global_rank :: fabric.world_size]
        work = ((number, _source_batches(images, image_size, how, sections[number])) for number in mine)
        total, length = len(images), len(sections)
        done = total - sum(len(sections[number]) for number in missing)
    with Counting(console, f"features of {images.name}", "images", total, done=done) as counting:

        def advance(count: int) -> None:
            """Count the progress of this process for all, as processes do not exchange theirs."""
            counting.add(count * fabric.world_size)

        for number, batches in work:
            parts.save(number, encode_part(encoder, batches, how, patches, fabric.device, advance))
            length = max(length, number + 1)
    fabric.barrier()
    return [parts.stored(number) for number in range(length)]


@torch.no_grad()
def encode_part(
    encoder: ImageEncoder,
    batches: Iterable[NamedBatch],
    how: Extraction,
    patches: PatchType | None = None,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda count: None,
) -> Part:
    """All batches as one part, on the CPU. If no image can be read, the features have no width: 0 0."""
    encoder.eval().to(device)
    features: list[Tensor] = []
    patch_features: list[Tensor] = []
    indices, labels = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
    names: list[str] = []
    skipped: list[UnreadableImage] = []
    for batch in batches:
        skipped += batch.skipped
        if batch.names:
            pooled, found = encode(encoder, batch.images.to(device), how, patches is not None)
            pooled = pooled.cpu()
            require_finite(pooled, encoder, batch.names.__getitem__, torch.arange(len(pooled)))
            features.append(pooled)
            if found is not None:
                patch_features.append(_rounded(found, patches, encoder, batch.names))
            indices.append(batch.indices)
            labels.append(batch.labels)
            names += batch.names
        advance(len(batch.names) + len(batch.skipped))
    return Part(
        torch.cat(features or [torch.empty(0, 0)]),
        torch.cat(indices),
        torch.cat(labels),
        names,
        skipped,
        torch.cat(patch_features or [torch.empty(0, 0, 0)]) if patches else None,
    )


def _rounded(patches: Tensor, patch_type: PatchType | None, encoder: ImageEncoder, names: list[str]) -> Tensor:
    rounded = patches.to(torch.float16 if patch_type == "float16" else torch.float32).cpu()
    bad = ~torch.isfinite(rounded).flatten(1).all(dim=1)
    if bad.any():
        raise UserError(
            f"{encoder.what} gives patches for {names[int(bad.nonzero()[0])]} that {patch_type} cannot hold. Use "
            "dtype=float32 and precision=32-true. If they are used already, the encoder diverged."
        )
    return rounded


def _source_batches(source: ImageSource, image_size: Size, how: Extraction, wanted: range) -> Iterator[NamedBatch]:
    """Batches of the images with these numbers."""
    first, last = wanted.start, wanted.stop
    batches = evaluation_batches(source, image_size, how.batch_size, first=first, last=last, workers=how.workers)
    for batch in batches:
        labels = torch.full_like(batch.indices, -1) if source.labels is None else source.labels[batch.indices]
        names = [source.describe(index) for index in batch.indices.tolist()]
        yield NamedBatch(first, batch.images, batch.indices, labels, names, batch.skipped)


def _stream_batches(
    stream: ImageStream, image_size: Size, how: Extraction, images_in_part: int, finished: range
) -> Iterator[NamedBatch]:
    """All images of a stream except those of finished parts. No batch reaches into the next part."""
    entries = one_pass(
        stream,
        partial(_decoded, image_size=image_size),
        how.workers,
        at_once=how.batch_size,
        bytes_at_once=sys.maxsize,
        section=images_in_part,
        finished=finished,
    )
    for batch in entries:
        read = [(index, *found) for index, found in batch if not isinstance(found, UnreadableImage)]
        indices, names, labels, images = zip(*read, strict=True) if read else ((), (), (), ())
        yield NamedBatch(
            batch[0][0],
            torch.from_numpy(np.array(images, np.uint8).reshape(-1, 3, *image_size)),
            torch.tensor(indices, dtype=torch.int64),
            torch.tensor(labels, dtype=torch.int64),
            list(names),
            [found for _, found in batch if isinstance(found, UnreadableImage)],
        )


def _decoded(index: int, record: Record, image_size: Size) -> tuple[str, int, NDArray[np.uint8]]:
    """The name of an image, its label, and its largest centered crop."""
    crop = draw_crops(PRESETS["none"], torch.tensor([index]))
    image = decode_row(record.encoded, record.name, 0, crop, image_size)
    return record.name, -1 if record.label is None else record.label, image.numpy()
