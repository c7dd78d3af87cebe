"""Masks of every kind: what is promised for every grid and every setting, or why it is refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonargparse import ArgumentParser
from mask_checks import GRIDS, assert_sound, block_sizes, covered, leaks

from flexpredict.errors import UserError
from flexpredict.masking import check_masking, sample_masks
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Masking


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


def test_what_a_masking_leaves_open_follows_its_kind_and_what_it_says_stays() -> None:
    assert (Masking().settled().kind, Masking().settled("random").kind) == ("multiblock", "random")
    assert Masking(kind="published").settled("random").kind == "published"
    assert [Masking(kind=kind).settled().mask_ratio for kind in ("random", "blocks")] == [0.75, 0.6]
    assert Masking(kind="blocks", mask_ratio=0.3).settled().mask_ratio == 0.3


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
        ({"target_scale": (0.7, 0.8)}, (14, 14), ["14x14", "may leave fewer", "masking.target_scale"]),
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
