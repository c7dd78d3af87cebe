"""Blocks of the multi-block masks: any place is as likely as any other, and what is left is kept by chance alone."""

import itertools
import math

import numpy as np
import pytest
import torch
from mask_checks import assert_sound, block_sizes, frequencies, leaks

from flexpredict.masking import check_masking, multiblock, sample_masks
from flexpredict.masking.rectangles import as_ranks, keep_highest, row_words
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.settings.masking import Masking


@pytest.mark.parametrize("grid", [(14, 14), (8, 8), (6, 11)])
def test_the_last_row_and_column_are_used_as_often_as_the_first(grid: tuple[int, int]) -> None:
    for patches in frequencies(Masking(), grid, steps=60, batch=480):
        assert patches.min() > 0
        torch.testing.assert_close(patches, patches.flip(0), rtol=0.09, atol=0)
        torch.testing.assert_close(patches, patches.flip(1), rtol=0.09, atol=0)
        for by_row_or_column in (patches.sum(0), patches.sum(1)):
            torch.testing.assert_close(by_row_or_column, by_row_or_column.flip(0), rtol=0.04, atol=0)


def test_blocks_lie_at_every_place_equally_often() -> None:
    masking = Masking(targets=1, target_scale=(0.2, 0.2), target_aspect=(1.0, 1.0))
    masks = sample_masks(masking, (7, 9), stream_key(1, "masks", 0), 40_000)
    height, width = block_sizes(masks, 9)[0, 0, 0].tolist()
    counts = masks.targets[..., 0].flatten().bincount(minlength=63).view(7, 9)
    places = counts[: 7 - height + 1, : 9 - width + 1]
    assert places.sum() == 40_000
    expected = 40_000 / places.numel()
    chi_squared = ((places - expected) ** 2 / expected).sum().item()
    freedom = places.numel() - 1
    assert abs(chi_squared - freedom) < 4 * math.sqrt(2 * freedom)


def test_scale_and_aspect_are_independent_except_in_published() -> None:
    def correlation(kind: str) -> float:
        size = torch.stack(
            [
                block_sizes(sample_masks(Masking(kind=kind), (30, 30), stream_key(0, "masks", step), 1), 30)[0, 0, 0]
                for step in range(600)
            ]
        ).double()
        return float(torch.corrcoef(torch.stack((size.prod(-1), size[:, 0] / size[:, 1])))[0, 1])

    assert abs(correlation("multiblock")) < 0.12
    assert correlation("published") > 0.9


@pytest.mark.parametrize("grid", [(8, 8), (14, 14), (9, 20), (56, 56)])
def test_blocks_have_the_scale_and_aspect_that_were_asked_for(grid: tuple[int, int]) -> None:
    masking = Masking()
    patches = math.prod(grid)
    sizes = torch.stack(
        [
            block_sizes(sample_masks(masking, grid, stream_key(0, "masks", step), 1), grid[1])[0, 0, 0]
            for step in range(400)
        ]
    )
    share = sizes.prod(-1) / patches
    # A whole number of rows and columns: the area is off by half the longer side at the most.
    slack = 0.5 * sizes.max().item() / patches
    assert share.min() > 0.15 - slack and share.max() < 0.2 + slack
    assert abs(share.mean() - 0.175) < 0.005
    height, width = sizes.unbind(-1)
    assert ((height + 1) / (width - 1) > 0.75).all() and ((height - 1) / (width + 1) < 1.5).all()


def test_a_block_too_long_for_the_grid_keeps_its_area() -> None:
    masking = Masking(target_scale=(0.25, 0.25), target_aspect=(5.0, 5.0), targets=1)
    check_masking(masking, (4, 24))
    masks = sample_masks(masking, (4, 24), 0, 2)
    assert block_sizes(masks, 24)[0, 0, 0].tolist() == [4, 6]


def test_one_unlucky_image_does_not_take_the_context_from_the_batch() -> None:
    sizes = {}
    for min_context in (0.0, 0.25):
        masking = Masking(min_context=min_context)
        steps = [sample_masks(masking, (14, 14), stream_key(0, "masks", step), 1024) for step in range(25)]
        sizes[min_context] = min(masks.context.shape[-1] for masks in steps)
    assert sizes[0.0] < 0.9 * 49 < 49 <= sizes[0.25]


def test_the_last_resort_leaves_enough_and_does_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    masking, grid = Masking(min_context=0.4), (14, 14)
    check_masking(Masking(min_context=0.4, targets=1), grid)
    monkeypatch.setattr(multiblock, "_RETRIES", 1)
    masks = sample_masks(masking, grid, stream_key(0, "masks", 0), 256)
    assert_sound(masks, masking, grid, 256)
    assert not leaks(masks, grid)
    assert masks.context.shape[-1] >= 0.4 * 196
    in_one_place = (masks.targets == masks.targets[:, :, :1]).all(-1).all(-1)
    assert in_one_place.any() and not in_one_place.all()


def test_the_targets_of_an_image_do_not_depend_on_the_others() -> None:
    masking = Masking(min_context=0.4)  # so that many layouts are drawn again
    rows = np.arange(63, 0, -2)
    _, everyone = multiblock.sample_multiblock(masking, (14, 14), 8, np.arange(64))
    _, some = multiblock.sample_multiblock(masking, (14, 14), 8, rows)
    assert np.array_equal(some, everyone[rows])


def test_images_and_their_contexts_are_drawn_independently() -> None:
    masks = sample_masks(Masking(targets=1, contexts_per_image=2), (8, 8), stream_key(0, "masks", 0), 20_000)
    corner = masks.targets[..., 0, 0].double()  # B C
    pairs = (corner[:, 0], corner[:, 1]), (corner[:-1, 0], corner[1:, 0])
    for one, other in pairs:
        assert abs(torch.corrcoef(torch.stack((one, other)))[0, 1]) < 0.02
    # Equal by chance only: once in as many times as there are places.
    assert (corner[:, 0] == corner[:, 1]).double().mean() < 0.05


# What is kept of a context


def row_ranks(key: int, rows: int, patches: int) -> np.ndarray:
    """Ranks of the patches as a batch of so many rows has them."""
    return as_ranks(row_words(key, np.arange(1), patches)[0], row_words(key + 1, np.arange(rows), 2))


def test_what_is_left_is_kept_by_rank_alone() -> None:
    ranks = row_ranks(5, 300, 40)
    left = uniform(sample_keys(6, torch.arange(300)), 40).numpy() < 0.6
    count = int(left.sum(-1).min())
    kept = keep_highest(left, ranks, count)
    for row in range(300):
        patches = np.flatnonzero(left[row])
        best = patches[np.argsort(ranks[row, patches])[::-1][:count]]
        assert kept[row].tolist() == sorted(best.tolist())


@pytest.mark.parametrize("patches", [2, 3, 196, 4096, 2**16])
def test_no_two_patches_of_an_image_have_one_rank_and_none_has_that_of_a_patch_that_is_gone(patches: int) -> None:
    ranks = row_ranks(5, 3, patches)
    assert ranks.shape == (3, patches) and ranks.min() > 0
    assert all(len(set(row)) == patches for row in ranks.tolist())


def test_every_patch_that_is_left_is_kept_equally_often() -> None:
    left = np.ones((20_000, 30), dtype=np.bool_)
    left[:, ::3] = False
    kept = np.bincount(keep_highest(left, row_ranks(8, 20_000, 30), 8).ravel(), minlength=30)
    assert not kept[::3].any()
    # Each of 20 patches is kept with probability 8/20; the deviation of a count is sqrt(20,000 * 0.4 * 0.6) = 69.
    assert abs(np.delete(kept, np.s_[::3]) - 8000).max() < 4 * 69


def test_every_order_of_the_patches_is_equally_likely_in_a_row() -> None:
    orders = [tuple(row_ranks(3 * key, 5, 4)[4].argsort().tolist()) for key in range(4800)]
    counts = np.array([orders.count(order) for order in itertools.permutations(range(4))])
    assert abs(counts - 200).max() < 4 * math.sqrt(200)


@pytest.mark.parametrize("patches", [16, 64, 300])
def test_what_two_images_keep_has_nothing_in_common(patches: int) -> None:
    """They share as many patches as two independent draws do, on average and in spread (hypergeometric)."""
    count = patches // 3
    left = np.ones((400, patches), dtype=np.bool_)
    shared = []
    for key in range(20):
        kept = np.zeros(left.shape)
        np.put_along_axis(kept, keep_highest(left, row_ranks(100 * key, 400, patches), count), 1, axis=-1)
        shared.append((kept[::2] * kept[1::2]).sum(-1))
    common, share = np.concatenate(shared), count / patches
    variance = count * share * (1 - share) * (patches - count) / (patches - 1)
    assert abs(common.mean() - count * share) < 4 * math.sqrt(variance / len(common))
    assert abs(common.var() / variance - 1) < 0.1
