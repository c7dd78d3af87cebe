"""Normalization of pixels. They reach the device as bytes, and are normalized there."""

import torch
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def normalize(images: Tensor) -> Tensor:
    """images: B 3 H W uint8 -> float32 of about zero mean and unit variance (ImageNet's statistics)."""
    mean = torch.tensor(MEAN, device=images.device).view(3, 1, 1) * 255.0
    std = torch.tensor(STD, device=images.device).view(3, 1, 1) * 255.0
    # Converted first: subtracting a float from bytes takes four times as long.
    return images.float().sub_(mean).div_(std)
