"""The size at which whole images are encoded: in their own shape, as nearly as whole patches allow."""

import torch

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, in_a_line
from flexpredict.settings.extraction import SizeLike, one_image_size
from flexpredict.sizes import Grid, Size


class EncodedSize:
    """How large images are when they are encoded.

    Args:
        image_size: their shorter side; or height x width, to which all are stretched (default: the shorter side that
            the encoder was trained at).
    """

    def __init__(self, image_size: SizeLike | None, encoder: ImageEncoder) -> None:
        pair = one_image_size(image_size)
        stretched = pair is not None and ("x" in str(image_size) or not isinstance(image_size, int | str))
        self._stretched = pair if stretched else None
        self._shorter = min(pair or encoder.image_size)
        self._patch_size = encoder.patch_size
        self.is_usual = image_size is None or (not stretched and self._shorter == min(encoder.image_size))

    def of(self, size: Size) -> Size:
        """size: of the image as it is stored."""
        return self._stretched or encoded_size(size, self._shorter, self._patch_size)

    def __str__(self) -> str:
        if self._stretched is not None:
            return f"{self._stretched[0]}x{self._stretched[1]}"
        return f"shorter side {self._shorter}"


def encoded_size(size: Size, shorter_side: int, patch_size: Size) -> Size:
    """The size in whole patches that is nearest to an image scaled to this shorter side."""
    scale = shorter_side / min(size)
    height, width = (
        max(1, round(side * scale / patch)) * patch for side, patch in zip(size, patch_size, strict=True)
    )
    return height, width


def grid_of(encoder: ImageEncoder, size: Size) -> Grid:
    return size[0] // encoder.patch_size[0], size[1] // encoder.patch_size[1]


def check_encoder(encoder: ImageEncoder, size: Size, remedy: str) -> None:
    """Refuse an encoder that cannot take images of this size, before any work. remedy: if only the size is wrong."""
    rows, columns = grid_of(encoder, size)
    device = next(encoder.parameters()).device
    encoder.check_size(size)
    try:
        with torch.inference_mode():
            patches = encoder(torch.zeros(1, 3, *size, dtype=torch.uint8, device=device))
    except (RuntimeError, ValueError, AssertionError) as error:  # raised by libraries for shapes they cannot take
        reason = in_a_line(error, 300)
        raise UserError(
            f"{encoder.what} cannot encode RGB images of {size[0]}x{size[1]} pixels: {reason} It must take 3 "
            f"channels and images of any size. If only the size is wrong, {remedy}."
        ) from error
    if patches.shape[1] != rows * columns:
        raise UserError(
            f"{encoder.what} gives {patches.shape[1]} patches for an image of {size[0]}x{size[1]} pixels, not the "
            f"{rows}x{columns} of its patch size, so the places of its patches are unknown. Use another encoder."
        )
