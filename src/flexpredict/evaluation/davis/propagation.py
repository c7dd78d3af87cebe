"""Carries labels from frame to frame: a patch takes the labels of the most similar patches of earlier frames.

This is DINO's protocol. A patch is compared with patches of the first frame and of the latest few, within a radius
(a square) around its own position. The top k by cosine similarity vote with exp(similarity / temperature). If several
are as similar as the k-th, all of them vote, so the order of ties does not matter.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.evaluation.davis import Propagation
from flexpredict.evaluation.davis.videos import Video
from flexpredict.evaluation.dense.patches import encoded_size
from flexpredict.evaluation.index_masks import Mask
from flexpredict.features.encoding import require_finite
from flexpredict.sizes import Grid, Size

# Targets are compared tile by tile with all patches in reach of any of them, in one matrix product. Larger tiles
# compare more patches that are out of reach, smaller ones spend their time on copying.
_TILE = (8, 16)


def propagate(features: Iterable[Tensor], first_labels: Tensor, how: Propagation) -> Iterator[Tensor]:
    """Labels (h w C) of the second frame, the third, and so on.

    features: h w D of each frame, vectors of length 1; first_labels: h w C of the first frame.
    """
    remaining = iter(features)
    first = next(remaining)
    # Slot 0 belongs to the first frame; the others are used in turn.
    seen = first.new_empty(1 + how.queue, *first.shape)
    labels = first.new_empty(1 + how.queue, *first_labels.shape)
    seen[0], labels[0] = first, first_labels.to(first)
    for number, target in enumerate(remaining):
        filled = 1 + min(number, how.queue)
        carried = carry_over(target, seen[:filled], labels[:filled], how)
        if how.queue:
            place = 1 + number % how.queue
            seen[place], labels[place] = target, carried
        yield carried


def carry_over(target: Tensor, sources: Tensor, labels: Tensor, how: Propagation) -> Tensor:
    """target: h w D, sources: F h w D, labels: F h w C -> h w C."""
    height, width, _ = target.shape
    carried = target.new_empty(height, width, labels.shape[-1])
    for top in range(0, height, _TILE[0]):
        for left in range(0, width, _TILE[1]):
            rows = torch.arange(top, min(top + _TILE[0], height), device=target.device)
            columns = torch.arange(left, min(left + _TILE[1], width), device=target.device)
            near_rows, rows_in_reach = _reach(rows, height, how.radius)
            near_columns, columns_in_reach = _reach(columns, width, how.radius)
            in_reach = rows_in_reach[:, None, :, None] & columns_in_reach[None, :, None, :]  # r c R C
            tile = slice(top, top + len(rows)), slice(left, left + len(columns))
            around = slice(None), near_rows, near_columns
            carried[tile] = _vote(target[tile], sources[around], labels[around], in_reach, how)
    return carried


def _reach(places: Tensor, length: int, radius: int) -> tuple[slice, Tensor]:
    """The slice of a side within the radius of any of these positions, and a mask of what each one reaches: p P."""
    radius = radius or length
    start, end = max(0, int(places[0]) - radius), min(length, int(places[-1]) + radius + 1)
    candidates = torch.arange(start, end, device=places.device)
    return slice(start, end), (candidates - places[:, None]).abs() <= radius


def _vote(target: Tensor, sources: Tensor, labels: Tensor, in_reach: Tensor, how: Propagation) -> Tensor:
    """target: r c D, sources: F R C D, labels: F R C L, in_reach: r c R C -> r c L."""
    frames, dim, kinds = len(sources), sources.shape[-1], labels.shape[-1]
    similarity = target.reshape(-1, dim) @ sources.reshape(-1, dim).T  # rc FRC
    out_of_reach = ~in_reach.reshape(len(similarity), 1, -1)
    similarity.view(len(similarity), frames, -1).masked_fill_(out_of_reach, float("-inf"))
    top = similarity.topk(min(how.top_k, similarity.shape[1]), dim=1, sorted=True).values
    similarity.masked_fill_(similarity < top[:, -1:], float("-inf"))
    weights = similarity.div_(how.temperature).softmax(dim=1)
    return (weights @ labels.reshape(-1, kinds)).view(*target.shape[:2], kinds)


_PATCHES_AT_ONCE = 8192  # small frames are encoded several at a time


@torch.inference_mode()
def followed_masks(encoder: ImageEncoder, video: Video, shorter_side: int, how: Propagation) -> Iterator[Mask]:
    """The masks of all frames; the first is the given one."""
    size = encoded_size(video.size, shorter_side, encoder.patch_size)
    grid = size[0] // encoder.patch_size[0], size[1] // encoder.patch_size[1]
    first = video.mask(0)
    labels = to_grid(first, video.objects, grid)
    yield first
    for carried in propagate(_features(encoder, video, size, grid), labels, how):
        yield to_mask(carried, video.objects, video.size)


def _features(encoder: ImageEncoder, video: Video, size: Size, grid: Grid) -> Iterator[Tensor]:
    """Features of each frame, h w D, each vector of length 1."""
    device = next(encoder.parameters()).device
    at_once = max(1, _PATCHES_AT_ONCE // (grid[0] * grid[1]))
    for start in range(0, len(video.frames), at_once):
        numbers = range(start, min(start + at_once, len(video.frames)))
        images = torch.stack([video.frame(number, size) for number in numbers])
        patches = encoder(images.to(device)).float()
        require_finite(patches.flatten(1), encoder, video.describe, torch.tensor(numbers))
        yield from F.normalize(patches, dim=-1).unflatten(1, grid)


def to_grid(mask: Mask, objects: Sequence[int], grid: tuple[int, int]) -> Tensor:
    """mask: H W -> h w C, one-hot: 0 for the background, c for the c-th object. The middle of a patch decides."""
    rows, columns = (
        ((np.arange(patches) + 0.5) * pixels / patches).astype(int)
        for patches, pixels in zip(grid, mask.shape, strict=True)
    )
    coarse = torch.from_numpy(mask[rows[:, None], columns])
    one_hot = coarse[..., None] == torch.tensor([0, *objects])
    one_hot[..., 0] = ~one_hot[..., 1:].any(dim=-1)
    return one_hot.float()


def to_mask(labels: Tensor, objects: Sequence[int], size: tuple[int, int]) -> Mask:
    """labels: h w C -> H W: the most likely object, after each is stretched to the range 0 to 1, as DINO does."""
    fine = F.interpolate(labels.permute(2, 0, 1)[None], size=size, mode="bilinear", align_corners=False)[0]
    low, high = fine.amin(dim=(1, 2), keepdim=True), fine.amax(dim=(1, 2), keepdim=True)
    stretched = torch.where(high > low, (fine - low) / (high - low).clamp(min=1e-12), fine)
    # A few passes over the image; argmax along the first axis takes many times as long.
    best, winners = stretched[0], torch.zeros(size, dtype=torch.uint8, device=labels.device)
    for likelihood, number in zip(stretched[1:], objects, strict=True):
        winners.masked_fill_(likelihood > best, number)
        best = torch.maximum(best, likelihood)
    mask: Mask = winners.cpu().numpy()
    return mask
