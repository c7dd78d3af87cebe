"""Features of images by a frozen encoder: one vector for each image and, if asked for, one for each patch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, in_a_line
from flexpredict.settings.extraction import Extraction, PatchExtraction
from flexpredict.sizes import Grid

PatchType = Literal["float16", "float32"]


@dataclass(frozen=True)
class FeatureShape:
    """The shape of the features of one image."""

    dim: int  # of its vector
    grid: Grid | None = None  # rows and columns of patches; None without patch features
    patch_dim: int = 0
    patch_type: PatchType | None = None

    @property
    def patches(self) -> int:
        return 0 if self.grid is None else self.grid[0] * self.grid[1]

    @property
    def bytes_per_image(self) -> int:
        return 4 * self.dim + self.patches * self.patch_dim * (2 if self.patch_type == "float16" else 4)


@torch.no_grad()
def feature_shape(encoder: ImageEncoder, how: Extraction, patches: PatchType | None = None) -> FeatureShape:
    """The shape of features, found with a blank image, so that impossible requests are refused before any work."""
    height, width = size = how.size_for(encoder)
    encoder.check_size(size)
    encoder.check_layers(how.layers)
    blank = torch.zeros(1, 3, height, width, dtype=torch.uint8, device=next(encoder.buffers()).device)
    pooled, found = encode(encoder.eval(), blank, how, patches is not None)
    if found is None:
        return FeatureShape(pooled.shape[1])
    return FeatureShape(pooled.shape[1], patch_grid(encoder, size, found.shape[1]), found.shape[2], patches)


def encode(
    encoder: ImageEncoder, images: Tensor, how: Extraction, with_patches: bool = False
) -> tuple[Tensor, Tensor | None]:
    """images: B 3 H W uint8, on the encoder's device -> vectors B D float32, patches B P D; layers concatenated."""
    with _autocast(how, images):
        if not with_patches:
            return encoder.pooled(images, how.layers, how.pooling).float(), None
        pooled, layers = encoder.pooled_and_layers(images, how.layers, how.pooling)
    return pooled.float(), concatenated(layers, encoder.what)


def encode_patches(encoder: ImageEncoder, images: Tensor, how: PatchExtraction) -> Tensor:
    """images: B 3 H W uint8, on the encoder's device -> B P D float32; layers concatenated."""
    with _autocast(how, images):
        layers = encoder.layers(images, how.layers)
    return concatenated(layers, encoder.what).float()


def concatenated(layers: list[Tensor], what: str) -> Tensor:
    """Patches of all layers, each B P D -> B P (layers·D)."""
    if len({patches.shape[1] for patches in layers}) > 1:
        raise UserError(
            f"The last {len(layers)} layers of {what} have different numbers of patches, so they cannot be "
            "concatenated. Use layers=1."
        )
    return torch.cat(layers, dim=2)


def patch_grid(encoder: ImageEncoder, image_size: tuple[int, int], patches: int | None = None) -> Grid:
    """Rows and columns of this many patches in an image of this size; by default found with a blank image.

    Refuses an encoder that cannot take such images or whose patches have no known positions.
    """
    (height, width), (patch_height, patch_width) = image_size, encoder.patch_size
    if patches is None:
        encoder.check_size(image_size)
        try:
            with torch.no_grad():
                patches = encoder(torch.zeros(1, 3, height, width, dtype=torch.uint8)).shape[1]
        except (RuntimeError, ValueError, AssertionError) as error:  # raised by libraries for inputs they cannot take
            raise UserError(
                f"{encoder.what} cannot encode RGB images of {height}x{width} pixels: {in_a_line(error, 300)} It "
                "must take 3 channels and images of any size. If only the size is wrong, use another."
            ) from error
    # A convolutional network has one more cell if its cells do not fill the image.
    grids = ((height // patch_height, width // patch_width), (-(-height // patch_height), -(-width // patch_width)))
    for rows, columns in grids:
        if rows * columns == patches:
            return rows, columns
    raise UserError(
        f"{encoder.what} gives {patches} features for an image of {height}x{width}, which its patches of "
        f"{patch_height}x{patch_width} do not explain, so the positions of its patches are unknown. Use another "
        "encoder, or only its pooled features."
    )


def require_finite(vectors: Tensor, encoder: ImageEncoder, describe: Callable[[int], str], indices: Tensor) -> None:
    """Refuse NaN and infinity. vectors: B D, of the images with these indices (B); `describe` names an image."""
    bad = ~torch.isfinite(vectors).all(dim=1)
    if bad.any():
        raise UserError(
            f"{encoder.what} gives NaN or infinity for {int(bad.sum())} of {len(bad)} images, the first is "
            f"{describe(int(indices[bad.to(indices.device)][0]))}. It diverged or overflowed: try precision=32-true."
        )


def _autocast(how: PatchExtraction, images: Tensor) -> torch.autocast:
    return torch.autocast(images.device.type, torch.bfloat16, enabled=how.precision == "bf16-mixed")
