"""Follows the objects of one video: encodes the frames, carries labels from patch to patch, gives masks."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.davis import Propagation
from flexpredict.evaluation.davis.propagation import propagate
from flexpredict.evaluation.davis.videos import Video
from flexpredict.evaluation.dense.encoded_sizes import encoded_size, grid_of
from flexpredict.evaluation.index_masks import Mask

_PATCHES_AT_ONCE = 8192  # small frames are encoded several at a time


@torch.inference_mode()
def followed_masks(encoder: ImageEncoder, video: Video, shorter_side: int, how: Propagation) -> Iterator[Mask]:
    """The masks of all frames; the first is the given one."""
    size = encoded_size(video.size, shorter_side, encoder.patch_size)
    first = video.mask(0)
    labels = to_grid(first, video.objects, grid_of(encoder, size))
    yield first
    for carried in propagate(_features(encoder, video, size), labels, how):
        yield to_mask(carried, video.objects, video.size)


def _features(encoder: ImageEncoder, video: Video, size: tuple[int, int]) -> Iterator[Tensor]:
    """Features of each frame, h w D, each vector of length 1."""
    device, grid = next(encoder.parameters()).device, grid_of(encoder, size)
    at_once = max(1, _PATCHES_AT_ONCE // (grid[0] * grid[1]))
    for start in range(0, len(video.frames), at_once):
        numbers = range(start, min(start + at_once, len(video.frames)))
        images = torch.stack([video.frame(number, size) for number in numbers])
        patches = encoder(images.to(device)).float()
        if not torch.isfinite(patches).all():
            raise UserError(
                f"{encoder.what} gives NaN or infinity for frames of sequence {video.name} from "
                f"{video.frame_names[start]} on: it diverged or overflowed. Use other weights."
            )
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
