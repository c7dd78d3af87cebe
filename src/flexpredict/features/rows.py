"""What an encoder makes of images: a row each, of a vector and, where wanted, of the features of its patches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.encoders.frozen import FrozenEncoder
from flexpredict.errors import UserError
from flexpredict.features.extraction import Extraction, require_finite
from flexpredict.features.named_batches import NamedBatch
from flexpredict.features.parts import Part

PatchType = Literal["float16", "float32"]

# What is lost when work is interrupted, and what is in memory of it: so many images or so many bytes.
_IMAGES_IN_PART = 2048
_BYTES_IN_PART = 128 * 2**20
_USUAL_BATCH = 64


@dataclass(frozen=True)
class Row:
    """What there is of an image."""

    dim: int  # of its feature
    grid: tuple[int, int] | None = None  # patches, rows and columns; None where they are not wanted
    patch_dim: int = 0
    patch_type: PatchType | None = None

    @property
    def patches(self) -> int:
        return 0 if self.grid is None else self.grid[0] * self.grid[1]

    def images_in_part(self) -> int:
        """Fewer where patches make rows large; then full batches, if a part has room for any."""
        bytes_an_image = 4 * self.dim + self.patches * self.patch_dim * (2 if self.patch_type == "float16" else 4)
        fitting = min(_IMAGES_IN_PART, max(1, _BYTES_IN_PART // bytes_an_image))
        return fitting - fitting % _USUAL_BATCH if fitting > _USUAL_BATCH else fitting


@torch.no_grad()
def row_of(encoder: FrozenEncoder, how: Extraction, patches: PatchType | None) -> Row:
    """Found out with a blank image, so that what an encoder cannot give is refused before any work."""
    height, width = how.image_size or encoder.image_size
    encoder.check_size((height, width))
    encoder.check_layers(how.layers)
    blank = torch.zeros(1, 3, height, width, dtype=torch.uint8, device=next(encoder.parameters()).device)
    pooled, found = _encoded(encoder.eval(), blank, how, patches is not None)
    if found is None:
        return Row(pooled.shape[1])
    sides = list(zip((height, width), encoder.patch_size, strict=True))
    # A convolutional network has a cell more where its cells do not fill the image.
    grids = [
        (sides[0][0] // sides[0][1], sides[1][0] // sides[1][1]),
        tuple(-(-side // cell) for side, cell in sides),
    ]
    for rows, columns in grids:
        if rows * columns == found.shape[1]:
            return Row(pooled.shape[1], (rows, columns), found.shape[2], patches)
    raise UserError(
        f"{encoder.what} gives {found.shape[1]} features for the {grids[0][0]}x{grids[0][1]} patches of an image, so "
        "it cannot be said where they are. Leave --patches out."
    )


@torch.no_grad()
def encode_part(
    encoder: FrozenEncoder,
    batches: Iterable[NamedBatch],
    how: Extraction,
    row: Row,
    device: torch.device | str = "cpu",
    advance: Callable[[int], None] = lambda count: None,
) -> Part:
    """All batches as one part, on the CPU."""
    encoder.eval().to(device)
    dtype = torch.float16 if row.patch_type == "float16" else torch.float32
    features, patches = [torch.empty(0, row.dim)], [torch.empty(0, row.patches, row.patch_dim, dtype=dtype)]
    indices, labels = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
    names: list[str] = []
    skipped: list[UnreadableImage] = []
    for batch in batches:
        skipped += batch.skipped
        if batch.names:
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=how.precision == "bf16-mixed"):
                pooled, found = _encoded(encoder, batch.images.to(device), how, row.grid is not None)
            pooled = pooled.float().cpu()
            require_finite(pooled, encoder, batch.names.__getitem__, torch.arange(len(pooled)))
            features.append(pooled)
            if found is not None:
                patches.append(_stored(found, dtype, encoder, batch.names))
            indices.append(batch.indices)
            labels.append(batch.labels)
            names += batch.names
        advance(len(batch.names) + len(batch.skipped))
    return Part(
        torch.cat(features),
        torch.cat(indices),
        torch.cat(labels),
        names,
        skipped,
        torch.cat(patches) if row.grid is not None else None,
    )


def _encoded(
    encoder: FrozenEncoder, images: Tensor, how: Extraction, with_patches: bool
) -> tuple[Tensor, Tensor | None]:
    """images: B 3 H W -> B D, B P D. The layers stand side by side in both."""
    if not with_patches:
        return encoder.pooled(images, how.layers, how.pooling), None
    pooled, layers = encoder.pooled_and_layers(images, how.layers, how.pooling)
    if len({patches.shape[1] for patches in layers}) > 1:
        raise UserError(
            f"The last {how.layers} layers of {encoder.what} have different numbers of patches, which cannot stand "
            "side by side. Use --layers 1, or leave --patches out."
        )
    return pooled, torch.cat(layers, dim=2)


def _stored(patches: Tensor, dtype: torch.dtype, encoder: FrozenEncoder, names: list[str]) -> Tensor:
    stored = patches.to(dtype).cpu()
    bad = ~torch.isfinite(stored).flatten(1).all(dim=1)
    if bad.any():
        raise UserError(
            f"{encoder.what} gives patches for {names[int(bad.nonzero()[0])]} that {dtype} cannot hold. Use --dtype "
            "float32 (and --precision 32-true); if it is used already, the encoder diverged."
        )
    return stored
