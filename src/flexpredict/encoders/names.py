"""Resolves the name of an encoder to a file, folder or model."""

import os
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from flexpredict.encoders.arguments import parse_grid
from flexpredict.encoders.checkpoints.config_file import is_plain, is_timm
from flexpredict.errors import UserError, did_you_mean, printable
from flexpredict.named_options import split_options, whole_number
from flexpredict.runs.encoder_file import is_encoder_file
from flexpredict.runs.run_folder import is_run

Kind = Literal["run", "encoder file", "untrained", "checkpoint", "timm", "timm folder", "hf", "hf folder"]


@dataclass(frozen=True)
class EncoderName:
    """The name of an encoder, resolved."""

    text: str  # the name as it was given
    # A "checkpoint" is a file or folder that holds a plain vision transformer; "untrained" is the encoder of a run or
    # encoder file with its initial weights.
    kind: Kind
    path: Path = Path()  # of the file or folder
    model: str = ""  # for "timm" and "hf", the name of the model there
    # Options after the name, as in FILE,heads=12 or timm:NAME,pretrained=no.
    options: dict[str, str] = field(default_factory=dict)

    @property
    def heads(self) -> int | None:
        """Attention heads, if given after the name."""
        said = self.options.get("heads")
        return None if said is None else whole_number(said, "heads", self.text, least=1)

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches, if given after the name."""
        said = self.options.get("grid")
        return None if said is None else parse_grid(said)


def resolve_name(name: str | PathLike[str]) -> EncoderName:
    """Find the file, folder or model of a name; raises UserError if there is none."""
    text = fspath(name)
    library, colon, rest = text.partition(":")
    if colon and library == "timm":
        model, options = split_options(rest, ("pretrained", "seed"))
        return EncoderName(text, "timm", model=model, options=options)
    if colon and library == "hf":
        folder = Path(rest).expanduser()
        if not rest:
            raise UserError("hf: needs a name, for example hf:facebook/ijepa_vith14_1k, or the path of a folder.")
        if folder.is_dir():
            return EncoderName(text, "hf folder", folder, rest)
        return EncoderName(text, "hf", model=rest)
    file, options = split_options(text, ("heads", "grid", "pretrained"))
    path = Path(file).expanduser()
    if not path.exists():
        hint = did_you_mean(library, ("timm", "hf")) if colon else ""
        raise UserError(
            f"There is no encoder '{printable(text)}' (looked for in {Path.cwd()}).{hint} Give a run folder, a "
            "checkpoint, timm:NAME or hf:NAME."
        )
    return EncoderName(text, _kind_with(options, _kind_of(path), text), path, options=options)


def absolute_name(name: str) -> str:
    """A name of the same encoder that works from any folder."""
    found = resolve_name(name)
    if found.kind in ("timm", "hf"):
        return name
    library = "hf:" * (found.kind == "hf folder" and name.startswith("hf:"))
    return library + os.path.abspath(os.path.expanduser(name.removeprefix(library)))  # noqa: PTH100, PTH111


def _kind_with(options: dict[str, str], kind: Kind, text: str) -> Kind:
    if (pretrained := options.get("pretrained")) is None:
        return kind
    if kind not in ("run", "encoder file") or pretrained not in ("yes", "no"):
        raise UserError(
            f"pretrained={pretrained} in {printable(text)} does not work. Write RUN,pretrained=no or "
            "timm:NAME,pretrained=no for an untrained encoder; other files have none."
        )
    return "untrained" if pretrained == "no" else kind


def _kind_of(path: Path) -> Kind:
    if path.is_dir():
        if is_run(path):
            return "run"
        if (path / "config.json").is_file() and not is_plain(path):
            return "timm folder" if is_timm(path) else "hf folder"
        return "checkpoint"
    return "encoder file" if is_encoder_file(path) else "checkpoint"
