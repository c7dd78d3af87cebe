"""Follows the objects of one video: encodes the frames, carries labels from patch to patch, gives masks."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, in_a_line
from flexpredict.evaluation.davis.index_masks import Mask
from flexpredict.evaluation.davis.label_maps import to_grid, to_mask
from flexpredict.evaluation.davis.propagation import Propagation, propagate
from flexpredict.evaluation.davis.videos import Video

_PATCHES_AT_ONCE = 8192  # small frames are encoded several at a time


@torch.inference_mode()
def followed_masks(encoder: ImageEncoder, video: Video, shorter_side: int, how: Propagation) -> Iterator[Mask]:
    """The masks of all frames; the first is the given one."""
    size = encoded_size(video.size, shorter_side, encoder.patch_size)
    first = video.mask(0)
    labels = to_grid(first, video.objects, _grid(encoder, size))
    yield first
    for carried in propagate(_features(encoder, video, size), labels, how):
        yield to_mask(carried, video.objects, video.size)


def encoded_size(size: tuple[int, int], shorter_side: int, patch_size: tuple[int, int]) -> tuple[int, int]:
    """The size in whole patches that is nearest to the frames scaled to this shorter side."""
    scale = shorter_side / min(size)
    height, width = (
        max(1, round(side * scale / patch)) * patch for side, patch in zip(size, patch_size, strict=True)
    )
    return height, width


def check_encoder(encoder: ImageEncoder, size: tuple[int, int]) -> None:
    """Refuse an encoder that cannot take frames of this size, before any sequence is begun."""
    rows, columns = _grid(encoder, size)
    device = next(encoder.parameters()).device
    try:
        with torch.inference_mode():
            patches = encoder(torch.zeros(1, 3, *size, dtype=torch.uint8, device=device))
    except (RuntimeError, ValueError, AssertionError) as error:  # raised by libraries for shapes they cannot take
        reason = in_a_line(error, 300)
        raise UserError(
            f"{encoder.what} cannot encode RGB frames of {size[0]}x{size[1]} pixels: {reason} It must take 3 "
            f"channels and frames of any size. If only the size is wrong, use another height than {min(size)}."
        ) from error
    if patches.shape[1] != rows * columns:
        raise UserError(
            f"{encoder.what} gives {patches.shape[1]} patches for a frame of {size[0]}x{size[1]} pixels, not the "
            f"{rows}x{columns} of its patch size, so masks cannot be carried from patch to patch. Use another "
            "encoder."
        )


def _features(encoder: ImageEncoder, video: Video, size: tuple[int, int]) -> Iterator[Tensor]:
    """Features of each frame, h w D, each vector of length 1."""
    device, grid = next(encoder.parameters()).device, _grid(encoder, size)
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


def _grid(encoder: ImageEncoder, size: tuple[int, int]) -> tuple[int, int]:
    return size[0] // encoder.patch_size[0], size[1] // encoder.patch_size[1]
