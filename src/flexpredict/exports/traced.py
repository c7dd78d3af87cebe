"""What is traced for runtimes that need no model code: pixel_values B 3 H W -> patch_features B N D, pooled B D."""

import json

import torch
from torch import Tensor, nn

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.exports.format import normalized, outputs_of_tokens
from flexpredict.exports.verification import TRACED_IMAGES

OUTPUTS = ("patch_features", "pooled")


def trace(encoder: ViTEncoder) -> torch.export.ExportedProgram:
    """A program for any number of images of the encoder's size."""
    example = torch.zeros(TRACED_IMAGES, 3, *encoder.image_size)
    shapes = {"pixel_values": {0: torch.export.Dim("batch")}}
    with torch.no_grad():
        return torch.export.export(_Features(encoder).eval(), (example,), dynamic_shapes=shapes)


def metadata(encoder: ViTEncoder) -> dict[str, str]:
    """What those who feed the program must know, as JSON texts, which such files can carry."""
    values = {
        "mean": encoder.mean,
        "std": encoder.std,
        "image_size": encoder.image_size,
        "patch_size": encoder.patch_size,
        "pooling": encoder.pooling,
    }
    return {name: json.dumps(value) for name, value in values.items()}


def pixel_values(images: Tensor, metadata: dict[str, str]) -> Tensor:
    """images: B 3 H W uint8, normalized as the metadata of a file says."""
    return normalized(images, json.loads(metadata["mean"]), json.loads(metadata["std"]))


def shapes_comment(encoder: ViTEncoder) -> str:
    """For code in the model card."""
    return f"# 1 N {encoder.dim} and 1 {encoder.dim}"


class _Features(nn.Module):
    def __init__(self, encoder: ViTEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        (tokens,) = self.encoder.encoder.last_tokens(pixel_values)
        patches, pooled = outputs_of_tokens(self.encoder, tokens)
        return patches, pooled
