"""A `.pt2` file: the traced program and its weights, run by torch alone."""

from pathlib import Path

import torch

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.exports.card_code import code_with_pixels, quoted
from flexpredict.exports.format import Format, Outputs, Reader
from flexpredict.exports.traced import metadata, pixel_values, shapes_comment, trace
from flexpredict.runs.run_folder import RunFolder


def _check(encoder: ViTEncoder) -> None:
    """Anything can be traced."""


def _write(encoder: ViTEncoder, path: Path, run: RunFolder | None) -> tuple[str, ...]:
    # Opened here: torch wants a name that ends in .pt2, and this one is temporary.
    with path.open("wb") as file:
        torch.export.save(trace(encoder), file, extra_files=metadata(encoder))
    return ("Mean, standard deviation and image size are in it as extra files (mean, std, image_size …), as JSON.",)


def _read(encoder: ViTEncoder, path: Path) -> Reader:
    facts = dict.fromkeys(metadata(encoder), "")
    with path.open("rb") as file:
        program = torch.export.load(file, extra_files=facts).module()
    return lambda images: Outputs(*program(pixel_values(images, facts)))


def _load(encoder: ViTEncoder, name: str) -> str:
    return f"model = torch.export.load({quoted(name)}).module()"


def _usage(encoder: ViTEncoder, name: str) -> str:
    features = f"""\
with torch.inference_mode():
    patch_features, pooled = model(torch.from_numpy(pixel_values))  {shapes_comment(encoder)}"""
    return code_with_pixels(encoder, "import torch", _load(encoder, name), features)


FORMAT = Format("pytorch", (".pt2",), (), _check, _write, _read, _load, _usage)
