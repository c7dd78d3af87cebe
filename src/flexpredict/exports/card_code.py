"""Code for the model card: from photo.jpg to `patch_features` and `pooled`."""

import json

from flexpredict.encoders.vit_encoder import ViTEncoder


def quoted(text: str) -> str:
    """As a string in code."""
    return json.dumps(text, ensure_ascii=False)


def code_with_pixels(encoder: ViTEncoder, imports: str, model: str, features: str) -> str:
    """For libraries that bring no preprocessing.

    Args:
        imports: besides numpy and PIL.
        model: code that opens it.
        features: code that makes both outputs of `pixel_values`, a numpy array 1 3 H W.
    """
    height, width = encoder.image_size
    return f"""\
import numpy as np
{imports}
from PIL import Image, ImageOps

{model}
image = ImageOps.fit(Image.open("photo.jpg").convert("RGB"), ({width}, {height}), Image.Resampling.BICUBIC)
mean, std = np.array({list(encoder.mean)}, np.float32), np.array({list(encoder.std)}, np.float32)
pixel_values = ((np.asarray(image, np.float32) / 255 - mean) / std).transpose(2, 0, 1)[None]
{features}
"""


def pooling_code(encoder: ViTEncoder, tokens: str) -> str:
    """Code that makes both outputs of the last layer's tokens."""
    prefix = encoder.encoder.vit.num_prefix_tokens
    patches = f"{tokens}[:, {prefix}:]" if prefix else tokens
    pooled = "patch_features.mean(dim=1)" if encoder.pooling == "mean" else f"{tokens}[:, 0]"
    return f"patch_features = {patches}  # 1 N {encoder.dim}\npooled = {pooled}  # 1 {encoder.dim}\n"
