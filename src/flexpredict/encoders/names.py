"""What the name of an encoder stands for. Evaluation, pre-training and analyses all ask here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flexpredict.encoders.checkpoints.config_file import is_plain, is_timm
from flexpredict.errors import UserError, did_you_mean, printable
from flexpredict.runs.encoder_file import is_encoder_file, is_run

Kind = Literal["run", "encoder file", "checkpoint", "timm", "timm folder", "hf", "hf folder"]

_OPTIONS = {"timm": ("pretrained", "seed"), "file": ("heads", "grid")}


@dataclass(frozen=True)
class EncoderName:
    """What a name stands for.

    Args:
        text: the name as it was given.
        kind: what it stands for. A "checkpoint" is a file, or a folder, with a plain vision transformer in it.
        path: of the file or folder.
        model: of "timm" and "hf", the name of the model there.
        options: what follows the name, as in FILE,heads=12 or timm:NAME,pretrained=no.
    """

    text: str
    kind: Kind
    path: Path = Path()
    model: str = ""
    options: dict[str, str] = field(default_factory=dict)

    @property
    def heads(self) -> int | None:
        """Attention heads, as said after the name."""
        said = self.options.get("heads")
        if said is not None and not said.isdecimal():
            raise UserError(f"heads={said} in '{self.text}' is not a number. Write it like FILE,heads=12.")
        return None if said is None else int(said)

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches, as said after the name."""
        said = self.options.get("grid")
        sides = [] if said is None else said.lower().split("x")
        if said is not None and (len(sides) != 2 or not all(side.isdecimal() for side in sides)):
            raise UserError(
                f"grid={said} in '{self.text}' is not a grid. Give rows x columns of patches, like FILE,grid=4x16."
            )
        return (int(sides[0]), int(sides[1])) if sides else None


def resolve_name(name: str | Path) -> EncoderName:
    """Find out what a name stands for; raises where it stands for nothing."""
    text = str(name)
    library, colon, rest = text.partition(":")
    if colon and library == "timm":
        model, options = _options(rest, "timm", text)
        return EncoderName(text, "timm", model=model, options=options)
    if colon and library == "hf":
        folder = Path(rest).expanduser()
        if not rest:
            raise UserError("hf: needs a name, for example hf:facebook/ijepa_vith14_1k, or the path of a folder.")
        if folder.is_dir():
            return EncoderName(text, "hf folder", folder, rest)
        return EncoderName(text, "hf", model=rest)
    path, options = Path(text).expanduser(), {}
    if not path.exists() and "," in text:
        file, options = _options(text, "file", text)
        path = Path(file).expanduser()
    if not path.exists():
        hint = did_you_mean(library, ("timm", "hf")) if colon else ""
        raise UserError(
            f"There is no encoder '{printable(text)}' (looked for in {Path.cwd()}).{hint} Give a run folder, a "
            "checkpoint, timm:NAME or hf:NAME."
        )
    return EncoderName(text, _kind_of(path), path, options=options)


def _kind_of(path: Path) -> Kind:
    if path.is_dir():
        if is_run(path):
            return "run"
        if (path / "config.json").is_file() and not is_plain(path):
            return "timm folder" if is_timm(path) else "hf folder"
        return "checkpoint"
    return "encoder file" if is_encoder_file(path) else "checkpoint"


def _options(text: str, kind: Literal["timm", "file"], name: str) -> tuple[str, dict[str, str]]:
    """NAME,key=value,key=value."""
    first, *given = text.split(",")
    options = dict(option.partition("=")[::2] for option in given)
    known = _OPTIONS[kind]
    for key in options:
        if key not in known:
            near = did_you_mean(key, known)
            raise UserError(f"'{key}' in {printable(name)} is not an option.{near} Options: {', '.join(known)}.")
    return first, options
