"""Carries labels from frame to frame: a patch takes the labels of the most similar patches of earlier frames.

This is DINO's protocol. A patch is compared with patches of the first frame and of the latest few, within a radius
(a square) around its own place. The top k by cosine similarity vote with exp(similarity / temperature). If several
are as similar as the k-th, all of them vote, so the order of equals does not matter.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from flexpredict.evaluation.davis import Propagation

# Targets are compared tile by tile with all patches in reach of any of them, in one matrix product. Larger tiles
# compare more patches that are out of reach, smaller ones spend their time on copying.
_TILE = (8, 16)


def propagate(features: Iterable[Tensor], first_labels: Tensor, how: Propagation) -> Iterator[Tensor]:
    """Labels (h w C) of the second frame, the third, and so on.

    features: of all frames in turn, h w D, each vector of length 1; first_labels: of the first frame, h w C.
    """
    remaining = iter(features)
    first = next(remaining)
    # Place 0 belongs to the first frame; the others are used in turn.
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
    """The part of a side that is in reach of any of these places, and which of it is in reach of each place: p P."""
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
