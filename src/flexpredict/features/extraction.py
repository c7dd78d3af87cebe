"""Frozen features of all images of a source: extracted once, cached by content, continued after an interruption."""

import json
from dataclasses import dataclass, field

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import cache_folder, digest
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.features.encoding import feature_shape
from flexpredict.features.part_maker import PartMaker, encode_part, source_batches
from flexpredict.features.parts import PartsFolder, images_in_part
from flexpredict.settings.extraction import Extraction

# To be changed whenever the same settings would give other features.
_VERSION = "2"
_MOST_UNREADABLE = 0.05


@dataclass
class Features:
    """One vector for each image that could be read."""

    vectors: Tensor  # n D float32
    indices: Tensor  # n int64, of the images in their source
    skipped: list[UnreadableImage] = field(default_factory=list)


def extract_features(
    encoder: ImageEncoder,
    source: ImageSource,
    how: Extraction | None = None,
    *,
    device: torch.device | str = "cpu",
) -> Features:
    """Features of all images of a source, in its order, on the CPU. Nothing is cached."""
    how = how or Extraction()
    batches = source_batches(source, how.size_for(encoder), how, 0, len(source))
    part = encode_part(encoder, batches, how, device=device)
    return Features(part.features, part.indices, part.skipped)


def cached_features(
    encoder: ImageEncoder, source: ImageSource, how: Extraction, fabric: Fabric, console: Console
) -> Features:
    """Features of all images of a source, on every rank. Ranks share the work.

    They are cached by the weights of the encoder, the images and all settings, so another protocol with the same
    features only has to read them.
    """
    # On every rank, before any work: if one rank alone were refused, the others would wait for it for ever.
    encoder.check_size(how.size_for(encoder))
    encoder.check_layers(how.layers)
    if how.pooling is not None and fabric.world_size > 1:  # Only a pass shows whether there is a class token.
        feature_shape(encoder, how)
    size = images_in_part(4 * encoder.dim * how.layers)
    facts = [json.dumps(how.describe(encoder), sort_keys=True), source.fingerprint(), str(len(source)), str(size)]
    parts = PartsFolder(cache_folder() / "features" / digest([_VERSION, *facts]))
    try:
        parts.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Features are cached in {parts.path}, which cannot be created: {error.strerror}. Set FLEXPREDICT_CACHE "
            "to a folder that can be written to."
        ) from error
    stored = PartMaker(encoder, how, parts, size, fabric, console).from_source(source)
    # A part without any readable image has no width.
    filled = [part.tensor("features") for part in stored if part.facts["rows"]]
    features = Features(
        torch.cat(filled) if filled else torch.empty(0, 0),
        torch.cat([torch.empty(0, dtype=torch.int64), *(part.tensor("indices") for part in stored)]),
        [failure for part in stored for failure in part.skipped()],
    )
    require_readable(source, features.skipped)
    return features


def require_readable(source: ImageSource, skipped: list[UnreadableImage]) -> None:
    """Refuse a source with too many unreadable images."""
    if len(skipped) > _MOST_UNREADABLE * len(source):
        raise UserError(
            f"{len(skipped)} of {len(source)} images of {source.name} could not be read, for example {skipped[0]}. "
            "Numbers on the rest would not be comparable: repair or remove the files."
        )
