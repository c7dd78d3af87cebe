"""An encoder as one safetensors file: weights in timm's layout, and in its header what is needed to rebuild it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from flexpredict.data.pixels import MEAN, STD
from flexpredict.errors import UserError, in_a_line
from flexpredict.files import write_atomically
from flexpredict.model.encoder import Encoder, build_encoder
from flexpredict.model.positions import Grid
from flexpredict.settings.recipe import EncoderPositions


@dataclass
class EncoderSpec:
    """How to build an encoder.

    Args:
        model: timm name.
        image_size: height and width it was trained at.
        patch_size: side of a patch.
        positions: "sincos", "learned" or "relative".
        class_token: whether the class token of the model was kept.
        options: further arguments of timm's constructor.
    """

    model: str
    image_size: tuple[int, int]
    patch_size: int
    positions: EncoderPositions
    class_token: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    def build(self, seed: int = 0) -> Encoder:
        return build_encoder(**asdict(self), seed=seed)


def save_encoder(path: Path, encoder: Encoder, spec: EncoderSpec, which: str) -> None:
    """which: what these weights are, for example "target encoder"."""
    header = {
        "format": "pt",
        "flexpredict": json.dumps({"encoder": asdict(spec), "which": which, "mean": MEAN, "std": STD}),
    }
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in encoder.vit.state_dict().items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=header))


def load_encoder(path: Path) -> Encoder:
    """The encoder of an `encoder.safetensors`, or of a run folder that has one; ready for evaluation."""
    return read_encoder(path).encoder


class EncoderFile(NamedTuple):
    """What such a file holds."""

    encoder: Encoder
    spec: EncoderSpec
    which: str  # "target encoder", or "encoder" where a method has but one


def read_encoder(path: Path) -> EncoderFile:
    """The same, how it was built, and what it was in its run."""
    path = path / "encoder.safetensors" if path.is_dir() else path
    try:
        with safe_open(path, framework="pt") as file:
            header = _header(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path} is not a readable encoder file: {error}. Give a run folder or its encoder.safetensors."
        ) from error
    if "encoder" not in header:
        raise UserError(
            f"{path} holds weights but not how to build their encoder. Give a file that flexpredict wrote."
        )
    try:
        values = header["encoder"]
        spec = EncoderSpec(**{**values, "image_size": tuple(values["image_size"])})
        encoder = spec.build()
        encoder.vit.load_state_dict(tensors)
    except (TypeError, KeyError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: its header and its weights do not fit ({in_a_line(error)}).") from error
    return EncoderFile(encoder.eval(), spec, header.get("which", "target encoder"))


def is_own(path: Path) -> bool:
    """Whether flexpredict wrote this file, or this folder is a run."""
    if path.is_dir():
        return (path / "encoder.safetensors").exists() or (path / "config.yaml").exists()
    try:
        with safe_open(path, framework="pt") as file:
            return "encoder" in _header(file)
    except (OSError, SafetensorError):
        return path.name == "encoder.safetensors"  # broken, but it is clear what it should have been


def _header(file: Any) -> dict[str, Any]:
    try:
        header = json.loads((file.metadata() or {}).get("flexpredict", "{}"))
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
