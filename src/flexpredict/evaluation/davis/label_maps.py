"""From a mask of pixels to the likelihood of each object in each patch, and back."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.evaluation.index_masks import Mask


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
