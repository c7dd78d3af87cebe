"""Objects of a video are followed as DINO does it: labels carried over, and masks to patches and back."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from small_davis import PatchColors
from torch import Tensor

from flexpredict.data.scenes.scenes import draw_videos
from flexpredict.errors import UserError
from flexpredict.evaluation.davis import Propagation
from flexpredict.evaluation.davis.propagation import carry_over, followed_masks, propagate, to_grid, to_mask
from flexpredict.evaluation.davis.videos import Video
from flexpredict.evaluation.dense.patches import encoded_size
from flexpredict.evaluation.index_masks import VOID
from flexpredict.randomness import normal, sample_keys, stream_key


def unit_features(name: str, *shape: int) -> Tensor:
    rows = int(np.prod(shape[:-1]))
    return F.normalize(normal(sample_keys(stream_key(0, name), torch.arange(rows)), shape[-1]), dim=1).view(shape)


def random_labels(name: str, *shape: int) -> Tensor:
    rows = int(np.prod(shape[:-1]))
    return normal(sample_keys(stream_key(1, name), torch.arange(rows)), shape[-1]).softmax(dim=1).view(shape)


def plain_propagate(features: list[Tensor], first_labels: Tensor, how: Propagation) -> list[Tensor]:
    """Frame by frame, patch by patch."""
    height, width, _ = features[0].shape
    assert how.queue > 0
    known, results = [(features[0], first_labels)], []
    for target in features[1:]:
        result = torch.zeros_like(first_labels)
        for y in range(height):
            for x in range(width):
                candidates = [
                    (similarity, labels[v, u])
                    for source, labels in [known[0], *known[1:][-how.queue :]]
                    for v, row in enumerate((source @ target[y, x]).tolist())
                    for u, similarity in enumerate(row)
                    if how.radius == 0 or max(abs(v - y), abs(u - x)) <= how.radius
                ]
                kth = sorted((similarity for similarity, _ in candidates), reverse=True)[: how.top_k][-1]
                voters = [(np.exp(s / how.temperature), labels) for s, labels in candidates if s >= kth]
                result[y, x] = sum(weight * labels for weight, labels in voters) / sum(weight for weight, _ in voters)
        known.append((target, result))
        results.append(result)
    return results


@pytest.mark.parametrize(
    "how",
    [
        Propagation(queue=2, radius=2),
        Propagation(queue=1, radius=1, top_k=30),  # more than there are within reach
        Propagation(queue=1, radius=0, temperature=0.5),
    ],
)
def test_propagation_equals_a_loop_over_patches(how: Propagation) -> None:
    features = list(unit_features("frames", 4, 9, 17, 6))  # more than one tile in both directions
    labels = random_labels("first", 9, 17, 3)
    propagated = list(propagate(features, labels, how))
    for ours, plain in zip(propagated, plain_propagate(features, labels, how), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.sum(dim=-1), torch.ones(9, 17))


def test_only_the_first_frame_is_looked_at_without_a_queue() -> None:
    features = unit_features("frames", 4, 5, 6, 8)
    labels = random_labels("first", 5, 6, 3)
    how = Propagation(queue=0, radius=2)
    *_, last = propagate(features, labels, how)
    torch.testing.assert_close(last, carry_over(features[3], features[:1], labels[None], how))


def test_all_that_are_as_similar_as_the_kth_vote_whatever_their_order() -> None:
    features = torch.eye(4)[:3].expand(6, 3, 4).reshape(6, 1, 3, 4)  # six frames alike, so six equals for each patch
    labels = random_labels("equals", 6, 1, 3, 2)
    carried = carry_over(features[0], features, labels, Propagation(radius=0, top_k=2))
    torch.testing.assert_close(carried, labels.mean(dim=0))
    torch.testing.assert_close(
        carried, carry_over(features[0], features, labels.flip(0), Propagation(queue=0, radius=0, top_k=2))
    )


def test_labels_move_with_the_features_and_not_further_than_the_radius() -> None:
    still = unit_features("moving", 10, 12, 16)
    labels = random_labels("moving", 10, 12, 3)
    how = Propagation(queue=1, radius=2, top_k=1)
    frames = [still.roll(2 * step, dims=1) for step in range(3)]
    *_, last = propagate(frames, labels, how)
    torch.testing.assert_close(last[:, 4:], labels[:, :-4])  # what came in from the left was not seen before
    fast, *_ = propagate([still, still.roll(3, dims=1)], labels, how)
    assert not torch.isclose(fast[:, 3:], labels[:, :-3]).all(dim=-1).any()


def test_a_grid_smaller_than_top_k_is_no_trouble() -> None:
    features, labels = unit_features("tiny", 2, 1, 2, 4), random_labels("tiny", 1, 2, 2)
    how = Propagation(top_k=50)
    (carried,) = propagate(features, labels, how)
    torch.testing.assert_close(carried, plain_propagate(list(features), labels, how)[0])


@pytest.mark.parametrize("wrong", [{"queue": -1}, {"radius": -1}, {"top_k": 0}, {"temperature": 0.0}])
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Propagation(**wrong)


def test_an_object_that_moves_by_whole_patches_is_followed_without_a_fault() -> None:
    texture = normal(sample_keys(stream_key(0, "texture"), torch.arange(40)), 72 * 3).view(40, 72, 3)
    picture = (128 + 40 * texture).clamp(0, 255).byte().numpy()
    truth = np.zeros((40, 72), np.uint8)
    truth[12:24, 16:28], truth[24:32, 20:40] = 2, 5
    frames, masks = ([np.roll(start, 4 * step, axis=1) for step in range(5)] for start in (picture, truth))
    video = Video("moving", (40, 72), [f"{step:05d}" for step in range(5)], frames, masks, (2, 5))
    # What comes in from the left was not seen before; with this radius it is not taken for the objects.
    followed = list(followed_masks(PatchColors(), video, 40, Propagation(queue=2, radius=2, top_k=1)))
    np.testing.assert_array_equal(followed[0], truth)
    for mask, expected in zip(followed[1:], masks[1:], strict=True):
        np.testing.assert_array_equal(mask, to_mask(to_grid(expected, (2, 5), (10, 18)), (2, 5), (40, 72)))


# Masks and patches


def test_a_mask_is_brought_to_the_grid_as_dino_does_and_void_is_background() -> None:
    mask = draw_videos(np.arange(1), size=(60, 107)).masks[0, 0]
    mask[:8] = VOID
    objects = tuple(np.unique(mask[8:])[1:].tolist())
    labels = to_grid(mask, objects, (15, 26))
    resized = np.array(Image.fromarray(mask).resize((26, 15), Image.Resampling.NEAREST))
    resized[resized == VOID] = 0
    np.testing.assert_array_equal(np.array([0, *objects])[labels.argmax(dim=-1)], resized)
    assert (labels.sum(dim=-1) == 1).all()


def test_a_mask_of_whole_patches_survives_the_way_there_and_back() -> None:
    coarse = np.kron(np.array([[0, 0, 3], [0, 7, 3], [0, 7, 7]], np.uint8), np.ones((4, 4), np.uint8))
    np.testing.assert_array_equal(to_mask(to_grid(coarse, (3, 7), (12, 12)), (3, 7), (12, 12)), coarse)


def test_masks_are_stretched_per_object_before_the_most_likely_wins() -> None:
    labels = random_labels("stretch", 6, 7, 4)
    labels[..., 2] *= 0.01  # a faint object, which only stretching lets win anywhere
    fine = F.interpolate(labels.permute(2, 0, 1)[None], size=(30, 40), mode="bilinear", align_corners=False)[0]
    for channel in range(len(fine)):
        fine[channel] -= fine[channel].min()
        fine[channel] /= fine[channel].max()
    expected = np.array([0, 5, 6, 9])[fine.argmax(dim=0)]
    np.testing.assert_array_equal(to_mask(labels, (5, 6, 9), (30, 40)), expected)
    assert (expected == 6).any()


def test_an_object_that_is_nowhere_leaves_the_others_alone() -> None:
    labels = torch.zeros(4, 4, 3)
    labels[..., 0] = 1
    assert not to_mask(labels, (1, 2), (16, 16)).any()


@pytest.mark.parametrize(
    ("size", "shorter", "patch", "expected"),
    [
        ((480, 854), 480, (8, 8), (480, 856)),
        ((480, 854), 240, (16, 16), (240, 432)),
        ((854, 480), 480, (14, 14), (854, 476)),
        ((20, 90), 3, (16, 16), (16, 16)),
    ],
)
def test_frames_keep_their_aspect_in_whole_patches(
    size: tuple[int, int], shorter: int, patch: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert encoded_size(size, shorter, patch) == expected
