"""What is traced for runtimes that need no model code: pixel_values B 3 H W -> patch_features B N D, pooled B D."""

import json

import torch
from torch import Tensor, nn

from flexpredict.encoders.frozen import ViTEncoder
from flexpredict.export.format import pooled_tokens
from flexpredict.export.verification import TRACED_IMAGES

OUTPUTS = ("patch_features", "pooled")


def trace(encoder: ViTEncoder) -> torch.export.ExportedProgram:
    """A program for any number of images of the encoder's size."""
    example = torch.zeros(TRACED_IMAGES, 3, *encoder.image_size)
    shapes = {"pixel_values": {0: torch.export.Dim("batch")}}
    with torch.no_grad():
        return torch.export.export(_Features(encoder).eval(), (example,), dynamic_shapes=shapes)


def facts(encoder: ViTEncoder) -> dict[str, str]:
    """What those who feed the program must know, as the JSON texts that such files can carry."""
    values = {
        "mean": encoder.mean,
        "std": encoder.std,
        "image_size": encoder.image_size,
        "patch_size": encoder.patch_size,
        "pooling": encoder.pooling,
    }
    return {name: json.dumps(value) for name, value in values.items()}


def normalised(images: Tensor, facts: dict[str, str]) -> Tensor:
    """images: B 3 H W uint8 -> pixel_values, by what a file says."""
    mean, std = (torch.tensor(json.loads(facts[name])).view(3, 1, 1) for name in ("mean", "std"))
    return (images / 255 - mean) / std


class _Features(nn.Module):
    def __init__(self, encoder: ViTEncoder) -> None:
        super().__init__()
        self.frozen = encoder

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        (tokens,) = self.frozen.encoder.last_tokens(pixel_values)
        patches, pooled = pooled_tokens(self.frozen, tokens)
        return patches, pooled
