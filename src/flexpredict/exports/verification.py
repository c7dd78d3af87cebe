"""Verifies that an exported encoder gives the same features as the original, on the same images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import Reader, outputs_of
from flexpredict.randomness import sample_keys, stream_key, uniform

LARGEST_RELATIVE = 1e-4
TRACED_IMAGES, SHOWN_IMAGES = 2, 3  # different, so that a program traced for one batch size does not pass


@dataclass(frozen=True)
class Difference:
    """Between original and exported features."""

    absolute: float  # the largest
    relative: float  # the largest, over the root-mean-square of the original features

    def __str__(self) -> str:
        return f"{self.absolute:.1e} ({self.relative:.1e} of the features' scale)"


@torch.no_grad()
def verify(encoder: ViTEncoder, read: Reader, kind: str) -> Difference:
    """The difference between the features of `read` and the encoder's; refused if it is more than rounding.

    kind: the kind of export, for messages.
    """
    images = shown_images(encoder.image_size)
    wanted, found = outputs_of(encoder, images), read(images)
    absolute = relative = 0.0
    for name, original, exported in zip(wanted._fields, wanted, found, strict=True):
        if not original.isfinite().all():
            raise UserError(
                f"{encoder.what} gives features that are not numbers (NaN or infinity). Export another checkpoint."
            )
        if original.shape != exported.shape:
            raise UserError(
                f"As {kind}, {encoder.what} would give {name} of shape {tuple(exported.shape)} instead of "
                f"{tuple(original.shape)}. Nothing was written; choose another format."
            )
        # NaN counts as infinitely far; max() would ignore it.
        distance = float((original.double() - exported.double()).abs().nan_to_num(nan=torch.inf).max())
        absolute = max(absolute, distance)
        relative = max(relative, distance / float(original.double().square().mean().sqrt().clamp_min(1e-30)))
    difference = Difference(absolute, relative)
    if relative > LARGEST_RELATIVE:
        raise UserError(
            f"As {kind}, {encoder.what} would give other features: the largest difference is {difference}, and more "
            f"than {LARGEST_RELATIVE:g} is not rounding. The format may lack a part of this encoder (its activation, "
            "the ε of its norms). Nothing was written; choose another format."
        )
    return difference


def shown_images(size: tuple[int, int]) -> Tensor:
    """Noise, which makes use of every weight of the patch embedding: B 3 H W uint8."""
    keys = sample_keys(stream_key(0, "exported images"), torch.arange(SHOWN_IMAGES))
    return uniform(keys, 3 * size[0] * size[1]).mul(256).byte().view(SHOWN_IMAGES, 3, *size)
