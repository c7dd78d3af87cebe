"""Masks that divide the grid into what is seen and what is not: random patches and random blocks."""

import math

import pytest
import torch
from mask_checks import block_sizes, covered, frequencies

from flexpredict.masking import sample_masks
from flexpredict.settings.masking import Masking


@pytest.mark.parametrize("grid", [(4, 4), (5, 9), (14, 14)])
@pytest.mark.parametrize(("kind", "seen"), [("random", 0.25), ("blocks", 0.4)])
def test_random_patches_and_block_masks_divide_the_grid_exactly(
    kind: str, seen: float, grid: tuple[int, int]
) -> None:
    masks = sample_masks(Masking(kind=kind), grid, 11, 64)
    both = torch.cat((masks.context, masks.targets.squeeze(2)), -1).sort(-1).values
    assert torch.equal(both, torch.arange(math.prod(grid)).expand(64, 1, -1))
    assert masks.context.shape[-1] == round(math.prod(grid) * seen)


def test_random_masking_keeps_every_patch_equally_often() -> None:
    context, _ = frequencies(Masking(kind="random"), (6, 6), steps=10, batch=2000)
    torch.testing.assert_close(context, torch.full((6, 6), 0.25), rtol=0.05, atol=0)


def test_block_masks_hide_whole_regions_and_random_patches_do_not() -> None:
    def neighbors_alike(kind: str) -> float:
        targets = sample_masks(Masking(kind=kind, mask_ratio=0.6), (14, 14), 3, 256).targets
        hidden = covered(targets.flatten(0, 2), (14, 14)).view(-1, 14, 14)
        return float((hidden[:, :, 1:] == hidden[:, :, :-1]).float().mean())

    assert neighbors_alike("blocks") > 0.85
    assert neighbors_alike("random") < 0.56


def test_one_block_is_as_large_as_it_should_be_and_lies_anywhere() -> None:
    """A ratio that one block of 4x5 fills exactly: so the mask is that block, at each place equally often."""
    masking = Masking(kind="blocks", mask_ratio=0.2, target_scale=(0.2, 0.2), target_aspect=(0.8, 0.8))
    masks = sample_masks(masking, (10, 10), 4, 6000)
    assert (block_sizes(masks, 10) == torch.tensor([4, 5])).all()
    corners = torch.bincount(masks.targets[..., 0].flatten(), minlength=100).view(10, 10)
    assert (corners[:7, :6] > 0.6 * 6000 / 42).all() and corners[:7, :6].sum() == 6000


def test_block_masks_favor_no_side_of_the_image() -> None:
    _, targets = frequencies(Masking(kind="blocks"), (8, 8), steps=20, batch=4000)
    torch.testing.assert_close(targets, targets.flip(0), rtol=0.06, atol=0)
    torch.testing.assert_close(targets, targets.flip(1), rtol=0.06, atol=0)
