"""Images are shifted as planned, with reflected borders; distances are those of the definition."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.sources.derived import ShiftedSource, shifted
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.errors import UserError
from flexpredict.evaluation.location.place import distance, distance_between, plan_shifts
from flexpredict.randomness import sample_keys, uniform
from flexpredict.settings.augmentation import PRESETS


def pictures(count: int = 3, height: int = 16, width: int = 24) -> torch.Tensor:
    return uniform(sample_keys(2, torch.arange(count)), 3 * height * width).mul(255).byte().view(-1, 3, height, width)


def test_a_shift_by_nothing_changes_nothing() -> None:
    assert torch.equal(shifted(pictures(), 0, 0), pictures())


@pytest.mark.parametrize(("down", "right"), [(3, 0), (0, 5), (15, 23), (1, 1)])
def test_borders_are_reflected_as_torch_reflects_them(down: int, right: int) -> None:
    padded = F.pad(pictures().float(), (right, 0, down, 0), mode="reflect")
    assert torch.equal(shifted(pictures(), down, right), padded[:, :, :16, :24].byte())


def test_a_shifted_source_shifts_what_the_encoder_would_see() -> None:
    source = ArraySource("p", pictures(4).permute(0, 2, 3, 1).contiguous(), ("a", "b"), torch.tensor([0, 1, 1, 0]))
    moved = ShiftedSource(source, down=2, right=0)
    indices = torch.tensor([3, 1])
    crops = draw_crops(PRESETS["none"], indices)
    plain, _ = source.read(indices, crops, (8, 8))
    images, unreadable = moved.read(indices, crops, (8, 8))
    assert torch.equal(images[:, :, 2:], plain[:, :, :6]) and not unreadable
    assert len(moved) == 4 and moved.labels is source.labels and moved.classes == source.classes
    prints = {source.fingerprint(), moved.fingerprint(), ShiftedSource(source, 0, 2).fingerprint()}
    assert len(prints) == 3, "features of shifted images are kept apart"


def test_shifts_are_quarters_of_a_patch_and_patches_up_to_half_the_grid() -> None:
    names = [shift.name for shift in plan_shifts((8, 8), (4, 4), None)]
    assert names == ["1/4 patch", "1/2 patch", "3/4 patch", "1 patch", "2 patches", "3 patches"]
    assert [shift.pixels["down"] for shift in plan_shifts((8, 8), (4, 4), None)] == [1, 2, 3, 4, 8, 12]
    assert [shift.pixels["right"] for shift in plan_shifts((4, 4), (16, 14), None)] == [4, 7, 11, 14, 28]
    assert [shift.name for shift in plan_shifts((2, 2), (8, 8), None)][-1] == "1 patch"
    assert [shift.name for shift in plan_shifts((8, 8), (8, 8), 5)][-1] == "5 patches"
    assert len(plan_shifts((8, 8), (8, 8), 0)) == 3


def test_patches_too_small_for_quarters_have_fewer_shifts() -> None:
    assert [shift.name for shift in plan_shifts((8, 8), (2, 2), 1)] == ["1/2 patch", "1 patch"]
    assert [shift.name for shift in plan_shifts((8, 8), (3, 3), 1)] == ["1/4 patch", "3/4 patch", "1 patch"]
    assert [shift.name for shift in plan_shifts((8, 8), (1, 1), 2)] == ["1 patch", "2 patches"]


def test_a_single_row_is_shifted_sideways_only() -> None:
    assert all(list(shift.pixels) == ["right"] for shift in plan_shifts((1, 6), (8, 8), None))


@pytest.mark.parametrize("most", [-1, 4, 100])
def test_shifts_larger_than_the_image_are_refused(most: int) -> None:
    with pytest.raises(UserError, match=f"shifts={most}, but images of 4x6 patches can be shifted by at most 3"):
        plan_shifts((4, 6), (8, 8), most)


def test_distances_are_the_mean_over_rows_and_over_pairs() -> None:
    vectors, others = torch.randn(7, 5) + 0.5, torch.randn(7, 5)
    units, strangers = (part.numpy() / np.linalg.norm(part.numpy(), axis=1)[:, None] for part in (vectors, others))
    rows = [1 - float(a @ b) for a, b in zip(units, strangers, strict=True)]
    assert distance(vectors, others) == pytest.approx(np.mean(rows), abs=1e-6)
    pairs = [1 - float(a @ b) for a, b in itertools.combinations(units, 2)]
    assert distance_between(vectors) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert distance(vectors, 3 * vectors) == pytest.approx(0, abs=1e-12)
