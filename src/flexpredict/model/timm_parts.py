"""The parts of timm in use, imported after torchvision has been repaired (see torchvision_repair)."""

from flexpredict.torchvision_repair import repair

repair()

import timm  # noqa: E402
import torch  # noqa: E402
from timm.layers import Attention, PatchEmbed  # noqa: E402
from timm.models.vision_transformer import Block, VisionTransformer  # noqa: E402

__all__ = ["Attention", "Block", "PatchEmbed", "VisionTransformer", "resample_abs_pos_embed", "timm"]

# Not compiled: torch 2.13 cannot compile the gradient of a resize to sizes that vary ("Expected IntList but got
# GenericList"). It is little work.
resample_abs_pos_embed = torch.compiler.disable(timm.layers.resample_abs_pos_embed)
