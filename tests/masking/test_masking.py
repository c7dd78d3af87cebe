"""Masks: what is promised for every grid, what is uniform, and the faults that only `published` has."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonargparse import ArgumentParser
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.masking import Masks, check_masking, multiblock, sample_masks
from flexpredict.masking.rectangles import as_ranks, keep_highest, row_words
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.settings.masking import Masking

GRIDS = list(itertools.product(range(4, 17), range(4, 17)))


def spans(low: float, high: float) -> st.SearchStrategy[tuple[float, float]]:
    return st.tuples(st.floats(low, high), st.floats(low, high)).map(lambda pair: (min(pair), max(pair)))


@st.composite
def maskings(draw: st.DrawFn) -> Masking:
    return Masking(
        kind=draw(st.sampled_from(["multiblock", "random", "blocks"])),
        targets=draw(st.integers(1, 6)),
        target_scale=draw(spans(0.02, 0.35)),
        target_aspect=draw(spans(0.2, 5.0)),
        context_scale=draw(spans(0.5, 1.0)),
        min_context=draw(st.floats(0.0, 0.4)),
        mask_ratio=draw(st.floats(0.05, 0.95)),
        keep_targets=draw(st.sampled_from([1.0, 0.5, 0.01])),
        contexts_per_image=draw(st.integers(1, 3)),
    )


def covered(patches: Tensor, grid: tuple[int, int]) -> Tensor:
    """patches R Nt -> R N bool."""
    return torch.zeros(len(patches), math.prod(grid), dtype=torch.bool).scatter(-1, patches, True)


def leaks(masks: Masks, grid: tuple[int, int]) -> bool:
    context = covered(masks.context.flatten(0, 1), grid)
    targets = covered(masks.targets.flatten(0, 1).flatten(1), grid)
    return bool((context & targets).any())


def assert_sound(masks: Masks, masking: Masking, grid: tuple[int, int], batch: int) -> None:
    blocks = 1 if masking.kind in ("random", "blocks") else masking.targets
    assert masks.context.shape[:2] == (batch, masking.contexts_per_image)
    assert masks.targets.shape[:3] == (batch, masking.contexts_per_image, blocks)
    for patches in (masks.context, masks.targets):
        assert patches.dtype == torch.int64 and patches.device.type == "cpu"
        assert patches.shape[-1] > 0
        assert patches.min() >= 0 and patches.max() < math.prod(grid)
        assert (patches.diff(dim=-1) > 0).all()  # ascending, none twice


def frequencies(masking: Masking, grid: tuple[int, int], steps: int, batch: int) -> tuple[Tensor, Tensor]:
    """How often each patch is context, and target: H W, H W."""
    context, targets = torch.zeros(2, math.prod(grid)).unbind()
    for step in range(steps):
        masks = sample_masks(masking, grid, stream_key(3, "masks", step), batch)
        context += masks.context.flatten().bincount(minlength=math.prod(grid)) / (steps * batch)
        targets += masks.targets.flatten().bincount(minlength=math.prod(grid)) / (steps * batch)
    return context.view(grid), targets.view(grid)


def block_sizes(masks: Masks, columns: int) -> Tensor:
    """Height and width of the target blocks, after a proof that they are full rectangles: B C M 2."""
    row, column = masks.targets // columns, masks.targets % columns
    size = torch.stack((row.amax(-1) - row.amin(-1), column.amax(-1) - column.amin(-1)), -1) + 1
    assert (size.prod(-1) == masks.targets.shape[-1]).all()
    return size


@settings(max_examples=100, deadline=None)
@given(
    masking=maskings(),
    grid=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    key=st.integers(-(2**63), 2**63 - 1),
    batch=st.integers(1, 9),
)
def test_no_target_is_ever_context_whatever_the_settings(
    masking: Masking, grid: tuple[int, int], key: int, batch: int
) -> None:
    try:
        check_masking(masking, grid)
    except UserError as error:
        assert f"{grid[0]}x{grid[1]}" in str(error)
        return
    masks = sample_masks(masking, grid, key, batch)
    assert_sound(masks, masking, grid, batch)
    assert not leaks(masks, grid)
    if masking.kind == "multiblock" and masking.keep_targets == 1:
        block_sizes(masks, grid[1])
        assert masks.context.shape[-1] >= masking.min_context * math.prod(grid) - 1e-6


@pytest.mark.parametrize("kind", ["multiblock", "random", "blocks"])
def test_every_grid_from_4x4_to_16x16_works_with_the_defaults(kind: str) -> None:
    masking = Masking(kind=kind)
    for grid in GRIDS:
        check_masking(masking, grid)
        masks = sample_masks(masking, grid, stream_key(0, "masks", 0), 32)
        assert_sound(masks, masking, grid, 32)
        assert not leaks(masks, grid)


@pytest.mark.parametrize("grid", [(5, 64), (5, 65), (70, 130)])
def test_grids_of_more_columns_than_a_word_has_bits_work(grid: tuple[int, int]) -> None:
    masking = Masking()
    masks = sample_masks(masking, grid, 3, 16)
    assert_sound(masks, masking, grid, 16)
    assert not leaks(masks, grid)
    assert masks.context.remainder(grid[1]).max() > 0.9 * grid[1]


def test_published_works_on_every_grid_that_is_not_refused() -> None:
    masking = Masking(kind="published")
    refused = set()
    for grid in GRIDS:
        try:
            check_masking(masking, grid)
        except UserError as error:
            assert "multiblock" in str(error)
            refused.add(grid)
            continue
        for step in range(3):
            masks = sample_masks(masking, grid, stream_key(0, "masks", step), 16)
            assert_sound(masks, masking, grid, 16)
            assert masks.context.shape[-1] > 10
    # 32 px in patches of 4, or 64 px in patches of 8, never ends; the grids of the paper do.
    assert (8, 8) in refused and (7, 7) in refused
    assert not refused & {(14, 14), (16, 16)}


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


@pytest.mark.parametrize("kind", ["multiblock", "random", "blocks", "published"])
def test_masks_are_a_pure_function_of_their_arguments(kind: str) -> None:
    masking = Masking(kind=kind, contexts_per_image=2)
    state = torch.get_rng_state()
    first, again, other = (sample_masks(masking, (14, 14), stream_key(0, "masks", step), 16) for step in (4, 4, 5))
    assert torch.equal(first.context, again.context) and torch.equal(first.targets, again.targets)
    assert first.targets.shape != other.targets.shape or not torch.equal(first.targets, other.targets)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("kind", ["multiblock", "random", "blocks", "published"])
def test_a_larger_batch_changes_no_target_and_only_thins_contexts(kind: str) -> None:
    masking = Masking(kind=kind, contexts_per_image=2)
    key = stream_key(0, "masks", 7)
    small, large = sample_masks(masking, (14, 14), key, 8), sample_masks(masking, (14, 14), key, 200)
    shared = large.rows(0, 8)
    assert torch.equal(small.targets, shared.targets)
    assert shared.context.shape[-1] <= small.context.shape[-1]
    inside = covered(small.context.flatten(0, 1), (14, 14))
    assert inside.gather(-1, shared.context.flatten(0, 1)).all()


@pytest.mark.parametrize("kind", ["multiblock", "random", "published"])
def test_a_part_of_each_target_can_be_predicted(kind: str) -> None:
    whole, part = (Masking(kind=kind, contexts_per_image=2, keep_targets=share) for share in (1.0, 0.25))
    grid, key = (14, 14), stream_key(0, "masks", 7)
    everything, some, few = (
        sample_masks(masking, grid, key, batch) for masking, batch in ((whole, 64), (part, 64), (part, 8))
    )
    assert_sound(some, part, grid, 64)
    assert torch.equal(some.context, everything.context)
    assert torch.equal(some.targets[:8], few.targets)
    length = everything.targets.shape[-1]
    assert some.targets.shape[-1] == round(length / 4)
    inside = (some.targets.unsqueeze(-1) == everything.targets.unsqueeze(-2)).flatten(0, 2)
    assert inside.any(-1).all()
    drawn = inside.any(-2).double().mean(0)  # how often each place of a target
    assert drawn.min() > 0.5 * drawn.mean() and drawn.max() < 1.5 * drawn.mean()


def test_the_smallest_part_of_a_target_is_a_patch() -> None:
    masks = sample_masks(Masking(keep_targets=0.001), (8, 8), 3, 16)
    assert masks.targets.shape == (16, 1, 4, 1) and len(masks.targets.unique()) > 10


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


@pytest.mark.parametrize("grid", [(4, 4), (5, 9), (14, 14)])
@pytest.mark.parametrize(("kind", "seen"), [("random", 0.25), ("blocks", 0.4)])
def test_random_patches_and_block_masks_divide_the_grid_exactly(
    kind: str, seen: float, grid: tuple[int, int]
) -> None:
    masks = sample_masks(Masking(kind=kind), grid, 11, 64)
    both = torch.cat((masks.context, masks.targets.squeeze(2)), -1).sort(-1).values
    assert torch.equal(both, torch.arange(math.prod(grid)).expand(64, 1, -1))
    assert masks.context.shape[-1] == round(math.prod(grid) * seen)


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


def test_what_a_masking_leaves_open_follows_its_kind_and_what_it_says_stays() -> None:
    assert (Masking().settled().kind, Masking().settled("random").kind) == ("multiblock", "random")
    assert Masking(kind="published").settled("random").kind == "published"
    assert [Masking(kind=kind).settled().mask_ratio for kind in ("random", "blocks")] == [0.75, 0.6]
    assert Masking(kind="blocks", mask_ratio=0.3).settled().mask_ratio == 0.3


def test_random_masking_keeps_every_patch_equally_often() -> None:
    context, _ = frequencies(Masking(kind="random"), (6, 6), steps=10, batch=2000)
    torch.testing.assert_close(context, torch.full((6, 6), 0.25), rtol=0.05, atol=0)


def test_published_hardly_ever_keeps_the_bottom_and_never_reaches_the_last_row_and_column() -> None:
    context, targets = frequencies(Masking(kind="published"), (14, 14), steps=40, batch=256)
    for patches in (context, targets):
        assert patches[13].sum() == 0 and patches[:, 13].sum() == 0
    rows = context[:, :13].mean(-1)
    assert rows[11:13].max() < 0.1 < 0.5 < rows[0]


def test_published_lets_targets_leak_into_a_context_that_stays_too_small() -> None:
    masking = Masking(kind="published", target_scale=(0.5, 0.6))
    check_masking(masking, (10, 10))
    assert leaks(sample_masks(masking, (10, 10), stream_key(0, "masks", 0), 64), (10, 10))


def test_published_contexts_of_an_image_share_its_targets() -> None:
    masking = Masking(kind="published", contexts_per_image=3, context_scale=(0.6, 0.7))
    masks = sample_masks(masking, (14, 14), 5, 8)
    assert torch.equal(masks.targets, masks.targets[:, :1].expand_as(masks.targets))
    assert not torch.equal(masks.context[:, 0], masks.context[:, 1])


def published_image(
    numbers: Iterator[float], target: tuple[int, int], context: tuple[int, int], targets: int, grid: tuple[int, int]
) -> tuple[int, bool]:
    """The published rules for one image, block by block: the size of its context before the cut, whether it leaks."""

    def block(size: tuple[int, int]) -> np.ndarray:
        top, left = (int(next(numbers) * (side - length)) for side, length in zip(grid, size, strict=True))
        mask = np.zeros(grid, dtype=bool)
        mask[top : top + size[0], left : left + size[1]] = True
        return mask

    taken = [block(target) for _ in range(targets)]
    for tries in itertools.count():
        left = block(context)
        for mask in taken[: max(0, targets - tries // 20)]:
            left &= ~mask
        if left.sum() > 10:
            return left.sum(), any((left & mask).any() for mask in taken)
    raise AssertionError


@pytest.mark.parametrize(("scale", "context_scale", "grid"), [(0.15, 0.85, (14, 14)), (0.3, 0.3, (12, 12))])
def test_published_agrees_with_a_plain_loop(scale: float, context_scale: float, grid: tuple[int, int]) -> None:
    masking = Masking(
        kind="published", target_scale=(scale,) * 2, target_aspect=(1, 1), context_scale=(context_scale,) * 2
    )
    target, context = (round(math.sqrt(int(share * math.prod(grid)))) for share in (scale, context_scale))
    numbers = iter(uniform(torch.tensor(9), 100_000).tolist())
    looped = np.array([published_image(numbers, (target,) * 2, (context,) * 2, 4, grid) for _ in range(1000)])
    # A batch of one is never cut, so its context is what the rules give.
    steps = [sample_masks(masking, grid, stream_key(2, "masks", step), 1) for step in range(500)]
    ours = np.array([(masks.context.shape[-1], leaks(masks, grid)) for masks in steps])
    # Kolmogorov-Smirnov, at one in a thousand.
    sizes = np.arange(math.prod(grid) + 1)
    distance = np.abs((ours[:, :1] <= sizes).mean(0) - (looped[:, :1] <= sizes).mean(0)).max()
    assert distance < 1.95 * math.sqrt(1 / 500 + 1 / 1000)
    assert abs(ours[:, 1].mean() - looped[:, 1].mean()) < 0.07
    assert (looped[:, 1].mean() > 0.1) == (scale == 0.3)


@pytest.mark.parametrize(
    ("change", "grid", "said"),
    [
        ({"kind": "multblock"}, (14, 14), ["multblock", "Did you mean 'multiblock'"]),
        ({"targets": 0}, (14, 14), ["masking.targets=0", "at least 1"]),
        ({"contexts_per_image": 0}, (14, 14), ["masking.contexts_per_image=0"]),
        ({"target_scale": (0.2, 0.15)}, (14, 14), ["masking.target_scale=[0.2, 0.15]", "the smallest first"]),
        ({"context_scale": (0.5, 1.5)}, (14, 14), ["masking.context_scale=[0.5, 1.5]", "at most 1"]),
        ({"target_aspect": (0.0, 1.0)}, (14, 14), ["masking.target_aspect=[0.0, 1.0]", "more than 0"]),
        ({"min_context": 1.0}, (14, 14), ["masking.min_context=1", "less than 1"]),
        ({"keep_targets": 0.0}, (14, 14), ["masking.keep_targets=0", "more than 0"]),
        ({"mask_ratio": -0.1}, (14, 14), ["masking.mask_ratio=-0.1"]),
        ({}, (0, 14), ["0x14", "smaller than a patch"]),
        ({}, (1, 1), ["1x1", "more patches"]),
        ({"target_scale": (0.7, 0.8)}, (14, 14), ["14x14", "cannot be sure", "masking.target_scale"]),
        ({"targets": 16}, (8, 8), ["8x8", "16 target", "of all draws", "masking.targets"]),
        ({"kind": "random", "mask_ratio": 0.99}, (4, 4), ["masking.mask_ratio=0.99", "keeps 0 of 16", "4x4"]),
        ({"kind": "published"}, (8, 8), ["8x8", "never ends", "3x3", "masking.kind=multiblock"]),
        ({"kind": "published", "context_scale": (0.1, 0.1)}, (10, 10), ["context", "more than 10"]),
    ],
)
def test_impossible_settings_are_refused_with_the_reason(
    change: dict[str, object], grid: tuple[int, int], said: list[str]
) -> None:
    with pytest.raises(UserError) as raised:
        check_masking(Masking(**change), grid)
    for words in said:
        assert words in str(raised.value)


def test_masks_can_be_sliced_and_moved() -> None:
    masks = sample_masks(Masking(), (8, 8), 1, 6)
    parts = [masks.rows(0, 2), masks.rows(2, 6)]
    assert torch.equal(torch.cat([part.context for part in parts]), masks.context)
    assert torch.equal(torch.cat([part.targets for part in parts]), masks.targets)
    moved = masks.to("meta")
    assert moved.context.is_meta and moved.targets.is_meta


def test_settings_can_be_given_on_the_command_line() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Masking, "masking")
    parsed = parser.parse_args(["--masking.target_scale=[0.1, 0.3]", "--masking.kind=random"])
    assert Masking(**parsed.masking.as_dict()) == Masking(kind="random", target_scale=(0.1, 0.3))
