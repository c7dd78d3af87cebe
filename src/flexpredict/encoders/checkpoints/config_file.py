"""Reads the config.json beside weights, in the layouts of Hugging Face and timm."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexpredict.data.pixels import MEAN, STD
from flexpredict.errors import UserError, in_a_line, printable
from flexpredict.model.building import model_facts

# Plain vision transformers of the transformers library, whose weights fit timm's models.
_PLAIN = ("ijepa", "vit", "vit_mae", "vit_msn", "dinov2", "dinov2_with_registers", "data2vec-vision", "beit")


@dataclass
class Config:
    """Facts that tensors do not show, with defaults for those missing from the file."""

    format: str = ""
    model_type: str = ""
    heads: int | None = None
    decoder_heads: int | None = None
    image_size: tuple[int, int] | None = None
    norm_eps: float = 1e-6
    mean_pooling: bool = False  # a BEiT then has no final norm, but one in its head
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    model: str | None = None  # timm's name, which implies facts that shapes do not show, such as the activation
    options: dict[str, Any] = field(default_factory=dict)  # of timm's constructor, for the same reason


def read_config(folder: Path) -> Config:
    """The config of the weights in this folder; all defaults if there is no config.json."""
    path = folder / "config.json"
    values = _read(path)
    try:
        if isinstance(values.get("model_type"), str):
            return _hugging_face(path, values)
        if isinstance(values.get("architecture"), str):
            return _timm(values)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise UserError(
            f"{printable(str(path))}, or a file beside it, has an invalid value ({in_a_line(error)}). "
            "Correct it, or move the weights to a folder without it."
        ) from error
    return Config()


def is_timm(folder: Path) -> bool:
    """Whether this folder has timm's layout."""
    return isinstance(_read(folder / "config.json").get("architecture"), str)


def is_plain(folder: Path) -> bool:
    """Whether the encoder in this folder can be built here, without the library that wrote it."""
    values = _read(folder / "config.json")
    if not is_timm(folder):
        return values.get("model_type") in _PLAIN
    try:
        model_facts(values["architecture"])
    except UserError:
        return False
    return True


def _hugging_face(path: Path, values: dict[str, Any]) -> Config:
    kind = values["model_type"]
    if kind not in _PLAIN:
        raise UserError(
            f"{printable(str(path))} describes a model of type {kind}, which is not a plain vision transformer "
            f"({', '.join(_PLAIN)})."
        )
    if values.get("hidden_act", "gelu") != "gelu":
        raise UserError(f"{printable(str(path))} has the activation {values['hidden_act']}; encoders here have gelu.")
    pixels = _read(path.with_name("preprocessor_config.json"))
    return Config(
        f"{(values.get('architectures') or [kind])[0]} of Hugging Face transformers",
        kind,
        int(values.get("num_attention_heads", 12)),  # some versions of transformers leave out default values
        values.get("decoder_num_attention_heads"),
        pair(values.get("image_size", 224)),
        float(values.get("layer_norm_eps", 1e-6 if kind in ("ijepa", "dinov2", "dinov2_with_registers") else 1e-12)),
        kind in ("data2vec-vision", "beit") and bool(values.get("use_mean_pooling", True)),
        tuple(pixels.get("image_mean") or MEAN),
        tuple(pixels.get("image_std") or STD),
    )


def _timm(values: dict[str, Any]) -> Config:
    architecture = values["architecture"]
    pixels = values.get("pretrained_cfg", values)  # older files have no pretrained_cfg
    arguments = values.get("model_args") or {}
    sizes = {name: arguments[name] for name in ("embed_dim", "depth", "num_heads") if name in arguments}
    facts = model_facts(architecture, sizes)
    return Config(
        f"timm's {architecture}",
        "timm",
        facts.heads,
        image_size=pair(arguments.get("img_size") or pixels["input_size"][1:]),
        norm_eps=facts.norm_eps,
        mean=tuple(pixels.get("mean", MEAN)),
        std=tuple(pixels.get("std", STD)),
        model=architecture,
        options={name: arguments[name] for name in ("act_layer",) if isinstance(arguments.get(name), str)},
    )


def pair(size: Any) -> tuple[int, int]:
    """Height and width, from one number or two."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{printable(str(path))} cannot be read: {error}.") from error
    return values if isinstance(values, dict) else {}
