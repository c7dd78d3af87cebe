"""Carries labels from frame to frame: a patch takes the labels of the patches before it that resemble it most.

The protocol of DINO. A patch looks at the first frame and at the latest few, there at the patches within a radius
(a square) around its own place; the top k by cosine similarity vote with exp(similarity / temperature). Where more
than k are as similar as the k-th, all of them vote, so that no order among equals matters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flexpredict.errors import UserError

# Targets are compared tile by tile with all that is within reach of any of them, which is one matrix product. Larger
# tiles compare more that is then out of reach, smaller ones spend their time on copying.
_TILE = (8, 16)


@dataclass(frozen=True)
class Propagation:
    """How labels are carried over; these are DINO's numbers."""

    queue: int = 7  # frames before the target that are looked at, besides the first
    radius: int = 12  # in patches; 0 looks everywhere
    top_k: int = 5
    temperature: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("queue", 0), ("radius", 0), ("top_k", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}, but must be {least} or more.")
        if not self.temperature > 0:
            raise UserError(f"The temperature is {self.temperature}, but must be positive, like 0.1.")


def propagate(features: Iterable[Tensor], first_labels: Tensor, how: Propagation) -> Iterator[Tensor]:
    """Labels (h w C) of the second frame, the third ...

    features: of all frames in turn, h w D and of length 1; first_labels: of the first frame, h w C.
    """
    remaining = iter(features)
    first = next(remaining)
    # Places of the queue are used in turn; place 0 is the first frame's.
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
    """The stretch of a side that is within reach of some of these places, and what of it is so of each: p P."""
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
