"""Encodes arrays and pictures as text for the page. The script decodes them in static/arrays.js."""

import base64
import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def packed_rows(rows: Tensor) -> dict[str, Any]:
    """Vectors whose length does not matter, ... D, as int8: each row is divided by its largest absolute value."""
    flat = rows.detach().flatten(0, -2).float().cpu()
    largest = flat.abs().amax(dim=1, keepdim=True).clamp_min(1e-12)
    return {"dims": flat.shape[1], "int8": _text((flat / largest * 127).round().to(torch.int8).numpy())}


def packed_halves(array: Tensor) -> dict[str, Any]:
    """Vectors of any length, N D, in half precision."""
    return {"dims": array.shape[1], "float16": _text(array.detach().cpu().numpy().astype("<f2"))}


def jpeg(pixels: Tensor, quality: int = 85) -> str:
    """A JPEG as a data URI. pixels: 3 H W uint8."""
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(file, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def png(colors: Tensor) -> str:
    """A PNG as a data URI. colors: H W 3, 0 to 1."""
    file = io.BytesIO()
    pixels = colors.clamp(0, 1).mul(255).round().to(torch.uint8).cpu().numpy()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _text(array: "np.ndarray[Any, Any]") -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
