"""The parts of timm that are built upon, imported after torchvision has been mended (see torchvision_repair)."""

from flexpredict.torchvision_repair import repair

repair()

import timm  # noqa: E402
from timm.layers import Attention, PatchEmbed, resample_abs_pos_embed  # noqa: E402
from timm.models.vision_transformer import Block, VisionTransformer  # noqa: E402

__all__ = ["Attention", "Block", "PatchEmbed", "VisionTransformer", "resample_abs_pos_embed", "timm"]
