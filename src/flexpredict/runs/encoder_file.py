"""An encoder as one safetensors file: weights in timm's layout, and in its header what is needed to rebuild it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from flexpredict.data.pixels import MEAN, STD
from flexpredict.errors import UserError, in_a_line
from flexpredict.files import write_atomically
from flexpredict.model.building import build_encoder
from flexpredict.model.encoder import Encoder
from flexpredict.runs.checkpoint import whole_tensors
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import EncoderPositions
from flexpredict.sizes import Grid


@dataclass
class EncoderSpec:
    """How to build an encoder."""

    model: str  # timm name
    image_size: tuple[int, int]  # height and width it was trained at
    patch_size: int
    positions: EncoderPositions
    class_token: bool = False  # whether the model's class token was kept
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of timm's constructor

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "EncoderSpec":
        """The encoder of a settled recipe, given as a mapping like a run's config.yaml."""
        sides = str(config["image_size"]).split(",")[0].split("x")  # of several sizes, the first is the encoder's
        return cls(
            model=config["model"],
            image_size=(int(sides[0]), int(sides[-1])),
            patch_size=config["patch_size"],
            positions=config["encoder_positions"],
            class_token=config["class_token"],
            options=config["model_options"],
        )

    @property
    def grid(self) -> Grid:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    def build(self, seed: int = 0) -> Encoder:
        """A new encoder, its weights a function of the seed."""
        return build_encoder(**asdict(self), seed=seed)


class Trained(NamedTuple):
    """How far a run was when it saved an encoder, and whether that is unfinished."""

    step: int
    steps: int | None = None  # of the whole run; None for the encoder of the best step

    @property
    def is_unfinished(self) -> bool:
        return self.steps is not None and self.step < self.steps

    def __str__(self) -> str:
        return f"after step {self.step:,}" + (f" of {self.steps:,} (unfinished)" if self.is_unfinished else "")


class EncoderFile(NamedTuple):
    """The content of an encoder file."""

    encoder: Encoder
    spec: EncoderSpec
    role: str  # "target encoder", or "encoder" for a method that has only one
    trained: Trained | None


def save_encoder(
    path: Path, encoder: Encoder, spec: EncoderSpec, role: str, trained: Trained | None = None, write: bool = True
) -> None:
    """role: of the encoder in its run, such as "target encoder"; write: true on one rank, but all must call this."""
    facts = {"encoder": asdict(spec), "which": role, "trained": trained, "mean": MEAN, "std": STD}
    header = {"format": "pt", "flexpredict": json.dumps(facts)}
    tensors = whole_tensors(encoder.vit.state_dict(), write)
    if write:
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=header))


def read_encoder(path: Path) -> EncoderFile:
    """Read an encoder file, or that of a run folder; the encoder is in evaluation mode."""
    file_path = RunFolder(path).encoder if path.is_dir() else path
    if not file_path.exists():
        raise UserError(
            f"There is no {file_path}: the run has not written its encoder yet. Wait for its first checkpoint."
        )
    try:
        with safe_open(file_path, framework="pt") as file:
            header = _header(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{file_path} is not a readable encoder file: {error}. Give a run folder or its encoder.safetensors."
        ) from error
    if "encoder" not in header:
        raise UserError(
            f"{file_path} holds weights but not how to build their encoder. Give a file that flexpredict wrote."
        )
    try:
        values = header["encoder"]
        spec = EncoderSpec(**{**values, "image_size": tuple(values["image_size"])})
        encoder = spec.build()
        encoder.vit.load_state_dict(tensors)
        trained = header.get("trained")
        return EncoderFile(encoder.eval(), spec, header["which"], None if trained is None else Trained(*trained))
    except (TypeError, KeyError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(
            f"{file_path} is damaged: its header and its weights do not fit ({in_a_line(error)}). Restore it from a "
            "copy, or from the run that wrote it."
        ) from error


def is_encoder_file(path: Path) -> bool:
    """Whether flexpredict wrote this file."""
    try:
        with safe_open(path, framework="pt") as file:
            return "encoder" in _header(file)
    except (OSError, SafetensorError):
        return path.name == RunFolder(path.parent).encoder.name  # damaged, but named like one


def _header(file: Any) -> dict[str, Any]:
    try:
        header = json.loads((file.metadata() or {}).get("flexpredict", "{}"))
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
