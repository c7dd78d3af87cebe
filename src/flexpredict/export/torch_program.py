"""A `.pt2` file: the traced program and its weights, run by torch alone."""

from pathlib import Path

import torch
from torch import Tensor

from flexpredict.encoders.frozen import ViTEncoder
from flexpredict.export.format import Format, Outputs, Reader, pixels_code, quoted
from flexpredict.export.traced import facts, normalised, trace


def _check(encoder: ViTEncoder) -> None:
    """Anything can be traced."""


def _write(encoder: ViTEncoder, path: Path, run: Path | None) -> tuple[str, ...]:
    # Opened here: torch wants a name that ends in .pt2, and this one is temporary.
    with path.open("wb") as file:
        torch.export.save(trace(encoder), file, extra_files=facts(encoder))
    return ("Mean, deviation and image size are in it as extra files (mean, std, image_size …), each a JSON text.",)


def _read(encoder: ViTEncoder, path: Path) -> Reader:
    told = dict.fromkeys(facts(encoder), "")
    with path.open("rb") as file:
        program = torch.export.load(file, extra_files=told).module()

    def outputs(images: Tensor) -> Outputs:
        return Outputs(*program(normalised(images, told)))

    return outputs


def _load(encoder: ViTEncoder, name: str) -> str:
    return f"model = torch.export.load({quoted(name)}).module()"


def _usage(encoder: ViTEncoder, name: str) -> str:
    return f"""\
import numpy as np
import torch
from PIL import Image, ImageOps

{_load(encoder, name)}
{pixels_code(encoder)}\
with torch.inference_mode():
    patch_features, pooled = model(torch.from_numpy(pixel_values))  # 1 N {encoder.dim} and 1 {encoder.dim}
"""


FORMAT = Format("pytorch", (".pt2",), (), _check, _write, _read, _load, _usage)
