"""What may happen to an image on its way into the model."""

import math
from dataclasses import dataclass

from flexpredict.errors import UserError


@dataclass(frozen=True)
class Augmentation:
    """What may happen to an image on its way into the model. The defaults are I-JEPA's: a crop, nothing else.

    Args:
        crop_scale: smallest and largest area of the crop, as a share of the image (null: the largest centered crop,
            without randomness).
        crop_aspect: smallest and largest width / height of the crop, relative to the shape of the output.
        flip: probability of mirroring left and right.
        blur: probability of a Gaussian blur.
        blur_sigma: smallest and largest standard deviation of the blur, in pixels of the output.
        grayscale: probability of removing the colors.
    """

    crop_scale: tuple[float, float] | None = (0.3, 1.0)
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    blur: float = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    grayscale: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flip", "blur", "grayscale"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"augmentation.{name}={getattr(self, name)} is not a probability. Use 0 to 1.")
        for name, most in (("crop_scale", 1.0), ("crop_aspect", math.inf), ("blur_sigma", math.inf)):
            limits = getattr(self, name)
            if limits is not None and not 0 < limits[0] <= limits[1] <= most:
                raise UserError(
                    f"augmentation.{name}={limits} is not a range: give (smallest, largest), both above 0"
                    + (f" and at most {most:g}." if most < math.inf else ".")
                )


PRESETS = {
    "ijepa": Augmentation(),
    "stop": Augmentation(flip=0.5, blur=0.5, grayscale=0.2),
    "none": Augmentation(crop_scale=None),
}
