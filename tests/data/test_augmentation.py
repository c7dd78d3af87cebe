"""Crops, resizing, blur and grayscale against PIL, torchvision and plain formulas."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from flexpredict.data.augmentation import Crops, blur_and_grayscale, crop_arrays, draw_crops
from flexpredict.errors import UserError
from flexpredict.randomness import sample_keys, uniform
from flexpredict.settings.augmentation import PRESETS, Augmentation


def keys(count: int, first: int = 0) -> torch.Tensor:
    return sample_keys(5, torch.arange(first, first + count))


def pictures(count: int, height: int, width: int) -> torch.Tensor:
    """Noise: the hardest thing to resize alike. B H W 3 uint8."""
    return uniform(torch.arange(count), height * width * 3).mul(256).to(torch.uint8).view(-1, height, width, 3)


def boxes_of(crops: Crops, size: tuple[int, int], image_size: tuple[int, int]) -> np.ndarray:
    """B 4."""
    return np.array([crops.box(row, image_size, *size) for row in range(len(crops.flip))])


@pytest.mark.parametrize("size", [(375, 500), (64, 64), (100, 900), (7, 5)])
def test_crops_are_distributed_as_those_of_torchvision(size: tuple[int, int]) -> None:
    from flexpredict.torchvision_repair import repair

    repair()
    from torchvision.transforms import RandomResizedCrop

    count, (scale, aspect) = 3000, ((0.3, 1.0), (3 / 4, 4 / 3))
    blank = torch.empty(1, *size)
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(torch.Generator().get_state())
        theirs = np.array([RandomResizedCrop.get_params(blank, list(scale), list(aspect)) for _ in range(count)])
    left, top, right, bottom = boxes_of(draw_crops(PRESETS["ijepa"], keys(count)), size, (224, 224)).T
    ours = np.stack((top, left, bottom - top, right - left), axis=1)
    for ours_one, theirs_one in zip(ours.T, theirs.T, strict=True):
        points = np.unique(np.concatenate((ours_one, theirs_one)))
        difference = np.searchsorted(np.sort(ours_one), points, side="right") - np.searchsorted(
            np.sort(theirs_one), points, side="right"
        )
        # Two-sample Kolmogorov-Smirnov at a level of one in ten thousand.
        assert np.abs(difference).max() / count < 2.23 * math.sqrt(2 / count)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 300), st.integers(1, 300), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_every_box_is_inside_its_image_and_not_empty(
    height: int, width: int, out_height: int, out_width: int, first: int
) -> None:
    for augmentation in (*PRESETS.values(), Augmentation(crop_scale=(0.001, 0.01), crop_aspect=(0.1, 10.0))):
        crops = draw_crops(augmentation, keys(20, first))
        left, top, right, bottom = boxes_of(crops, (height, width), (out_height, out_width)).T
        assert (left >= 0).all() and (top >= 0).all() and (right <= width).all() and (bottom <= height).all()
        assert (right > left).all() and (bottom > top).all()


def test_the_crop_of_a_sample_does_not_depend_on_the_batch_it_is_in() -> None:
    whole = draw_crops(PRESETS["stop"], keys(100))
    part = draw_crops(PRESETS["stop"], keys(3, first=41))
    images = pictures(100, 40, 60)
    expected = blur_and_grayscale(crop_arrays(images, whole, (32, 32)), whole)
    assert torch.equal(blur_and_grayscale(crop_arrays(images[41:44], part, (32, 32)), part), expected[41:44])


def test_asking_for_blur_leaves_the_crops_where_they_were() -> None:
    crops = (draw_crops(PRESETS[name], keys(200)) for name in ("ijepa", "stop"))
    plain, blurred = (boxes_of(drawn, (50, 80), (32, 32)) for drawn in crops)
    assert np.array_equal(plain, blurred)


def test_aspect_is_relative_to_the_shape_of_the_output() -> None:
    crops = draw_crops(Augmentation(crop_scale=(0.2, 0.3), crop_aspect=(1.0, 1.0)), keys(500))
    left, top, right, bottom = boxes_of(crops, (1000, 1000), (100, 200)).T
    assert np.allclose((right - left) / (bottom - top), 2.0, atol=0.01)


@pytest.mark.parametrize(
    ("size", "image_size", "box"),
    [
        ((60, 100), (32, 32), (20, 0, 80, 60)),
        ((100, 60), (32, 32), (0, 20, 60, 80)),
        ((60, 100), (32, 64), (0, 5, 100, 55)),
        ((64, 64), (64, 64), (0, 0, 64, 64)),
    ],
)
def test_without_augmentation_the_largest_centered_box_is_taken(
    size: tuple[int, int], image_size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    boxes = boxes_of(draw_crops(PRESETS["none"], keys(4)), size, image_size)
    assert boxes.tolist() == [list(box)] * 4


def test_probabilities_are_those_asked_for() -> None:
    crops = draw_crops(Augmentation(flip=0.5, blur=0.3, blur_sigma=(0.5, 1.5), grayscale=0.2), keys(20_000))
    for happens, probability in ((crops.flip, 0.5), (crops.blur_sigma > 0, 0.3), (crops.grayscale, 0.2)):
        assert abs(happens.mean() - probability) < 4 * math.sqrt(probability * (1 - probability) / 20_000)
    sigmas = crops.blur_sigma[crops.blur_sigma > 0]
    assert 0.5 <= sigmas.min() < 0.51 and 1.49 < sigmas.max() <= 1.5 and abs(sigmas.mean() - 1.0) < 0.02


@pytest.mark.parametrize("image_size", [(64, 64), (48, 80), (17, 9), (150, 130)])
def test_resizing_by_matrix_products_gives_what_pil_gives(image_size: tuple[int, int]) -> None:
    images = pictures(40, 70, 50)
    crops = draw_crops(Augmentation(crop_scale=(0.05, 1.0), flip=0.5), keys(40))
    boxes = boxes_of(crops, (70, 50), image_size)
    ours = crop_arrays(images, crops, image_size).permute(0, 2, 3, 1).numpy()
    for picture, box, flip, result in zip(images.numpy(), boxes.tolist(), crops.flip, ours, strict=True):
        size = (image_size[1], image_size[0])
        theirs = np.asarray(Image.fromarray(picture).crop(box).resize(size, Image.Resampling.BILINEAR))
        theirs = theirs[:, ::-1] if flip else theirs
        # PIL may resize rows before columns, which rounds differently.
        difference = np.abs(result.astype(int) - theirs)
        assert difference.max() <= 2 and difference.mean() < 0.4


def test_an_uncropped_image_of_the_right_size_comes_out_untouched() -> None:
    images = pictures(6, 32, 32)
    assert torch.equal(
        crop_arrays(images, draw_crops(PRESETS["none"], keys(6)), (32, 32)), images.permute(0, 3, 1, 2)
    )


def test_resizing_adds_without_rounding_so_that_any_order_of_sums_gives_the_same_picture() -> None:
    images, crops = pictures(8, 90, 61), draw_crops(PRESETS["ijepa"], keys(8))
    mirrored = replace(crops, flip=~crops.flip)
    # Mirrored weights meet the pixels in another order.
    assert torch.equal(crop_arrays(images, mirrored, (40, 40)), crop_arrays(images, crops, (40, 40)).flip(-1))


def every(count: int, **changes: np.ndarray) -> Crops:
    return replace(draw_crops(PRESETS["none"], keys(count)), **changes)


def test_blur_is_a_gaussian_of_the_asked_width_for_each_image() -> None:
    sigmas = np.array([0.0, 0.1, 0.7, 1.3, 2.0])
    images = pictures(5, 30, 41).permute(0, 3, 1, 2).contiguous()
    ours = blur_and_grayscale(images.clone(), every(5, blur_sigma=sigmas))
    assert torch.equal(ours[:2], images[:2])
    for image, sigma, result in zip(images[2:].double(), sigmas[2:], ours[2:], strict=True):
        radius = math.ceil(3 * sigma)
        taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1).double() / sigma) ** 2)
        kernel = torch.outer(taps, taps) / taps.sum() ** 2
        padded = F.pad(image[:, None], (radius,) * 4, mode="replicate")
        theirs = F.conv2d(padded, kernel[None, None])[:, 0]
        assert (theirs - result).abs().max() <= 1.01


def test_blur_works_on_images_smaller_than_its_kernel() -> None:
    flat = torch.full((2, 3, 4, 3), 200, dtype=torch.uint8)
    assert torch.equal(blur_and_grayscale(flat.clone(), every(2, blur_sigma=np.array([2.0, 0.4]))), flat)


def test_grayscale_is_that_of_pil() -> None:
    images = pictures(3, 20, 20)
    planes = images.permute(0, 3, 1, 2).contiguous()
    ours = blur_and_grayscale(planes.clone(), every(3, grayscale=np.array([True, False, True])))
    assert torch.equal(ours[1], planes[1])
    for row in (0, 2):
        theirs = torch.from_numpy(np.array(Image.fromarray(images[row].numpy()).convert("L")))
        assert torch.equal(ours[row], theirs.expand(3, -1, -1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flip", 1.5),
        ("grayscale", -0.1),
        ("crop_scale", (0.5, 0.2)),
        ("crop_scale", (0.5, 1.2)),
        ("blur_sigma", (0, 1)),
    ],
)
def test_impossible_settings_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(UserError, match=field):
        Augmentation(**{field: value})  # type: ignore[arg-type]
