"""Masks as the published code draws them: its rules written out plainly, and the faults that only it has."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from mask_checks import GRIDS, assert_sound, frequencies, leaks

from flexpredict.errors import UserError
from flexpredict.masking import check_masking, sample_masks
from flexpredict.randomness import stream_key, uniform
from flexpredict.settings.masking import Masking


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
