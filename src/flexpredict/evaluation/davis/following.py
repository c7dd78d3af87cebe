"""Follows the objects of one video: encodes the frames, carries labels from patch to patch, gives masks."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.davis.label_maps import to_grid, to_mask
from flexpredict.evaluation.davis.propagation import Propagation, propagate
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
