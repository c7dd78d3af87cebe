"""Random changes to images before the model sees them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flexpredict.settings.ranges import check_ranges, ranged


@dataclass(frozen=True)
class Augmentation:
    """Random changes to an image before the model sees it. The defaults are I-JEPA's: only a crop.

    Args:
        crop_scale: smallest and largest area of the crop, as a share of the image (null: the largest centered crop,
            without randomness).
        crop_aspect: smallest and largest width / height of the crop, relative to the shape of the output.
        flip: probability of mirroring left and right.
        blur: probability of a Gaussian blur.
        blur_sigma: smallest and largest standard deviation of the blur, in pixels of the output.
        grayscale: probability of removing the colors.
    """

    crop_scale: tuple[float, float] | None = ranged((0.3, 1.0), above=0, most=1, span=True)
    crop_aspect: tuple[float, float] = ranged((3 / 4, 4 / 3), above=0, span=True)
    flip: float = ranged(0.0, least=0, most=1)
    blur: float = ranged(0.0, least=0, most=1)
    blur_sigma: tuple[float, float] = ranged((0.1, 2.0), above=0, span=True)
    grayscale: float = ranged(0.0, least=0, most=1)

    def __post_init__(self) -> None:
        check_ranges(self, "augmentation.")


PRESETS = {
    "ijepa": Augmentation(),
    "stop": Augmentation(flip=0.5, blur=0.5, grayscale=0.2),
    "none": Augmentation(crop_scale=None),
}


def chosen_augmentation(
    chosen: Augmentation | Mapping[str, Any] | str | None,
    usual: Augmentation,
    presets: Mapping[str, Augmentation] = PRESETS,
) -> Augmentation:
    """The augmentation for `chosen`: a preset's name, all values, or some values that override `usual`."""
    if isinstance(chosen, Mapping):
        return replace(usual, **chosen)
    if isinstance(chosen, str):
        return presets[chosen]
    return usual if chosen is None else chosen
