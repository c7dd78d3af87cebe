"""What can be asked of any masks: whether they are sound, whether they leak, where their patches lie."""

import itertools
import math

import torch
from torch import Tensor

from flexpredict.masking import Masks, sample_masks
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Masking

GRIDS = list(itertools.product(range(4, 17), range(4, 17)))


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
