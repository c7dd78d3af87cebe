"""Hand an encoder over to the libraries people already use: written, read back, compared, then put in place."""

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from flexpredict.encoders.frozen import FrozenEncoder, ViTEncoder
from flexpredict.errors import UserError, did_you_mean, in_a_line
from flexpredict.export.card_results import Measured, collect_results
from flexpredict.export.format import Format
from flexpredict.export.model_card import model_card
from flexpredict.export.plain import plain as plain_encoder
from flexpredict.export.verification import Difference, verify
from flexpredict.files import write_atomically, write_folder_atomically, write_text_atomically
from flexpredict.model.encoder import check_patches

# Imported when asked for: some need libraries that not everybody has.
_MODULES = {
    "timm": "timm_folder",
    "hf": "hugging_face",
    "official": "official",
    "onnx": "onnx_file",
    "torch-export": "torch_program",
}
FORMATS = tuple(_MODULES)
CARD = "README.md"


@dataclass(frozen=True)
class Exported:
    """What was written."""

    out: Path
    card: Path
    difference: Difference
    notes: tuple[str, ...]
    load: str  # a line of code
    measured: Measured


def export(
    encoder: FrozenEncoder,
    form: str,
    out: Path,
    *,
    image_size: tuple[int, int] | None = None,
    results: Path | None = None,
    licence: str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write an encoder in one of FORMATS. Nothing is left behind where it does not agree with the original.

    Args:
        out: a folder for timm and hf, a file for the others.
        image_size: height and width, where other than trained at.
        results: where evaluations wrote their JSON files, for the model card.
        licence: of the weights, for the model card.
        overwrite: replace an earlier export.
    """
    kind = _format(form)
    card = out / CARD if kind.is_folder else out.with_name(f"{out.name}.{CARD}")
    _check_place(kind, form, out, card, overwrite)
    plain = plain_encoder(encoder)
    run = _run_of(plain.name)
    fingerprint = encoder.fingerprint()  # as it was opened, and not resized: by this, evaluations know it
    measured = collect_results(plain.name, fingerprint, results)
    plain = plain if image_size is None else _resized(plain, image_size)
    kind.check(plain)
    compared: list[tuple[Difference, str]] = []
    notes: list[str] = []

    def write(temporary: Path) -> None:
        notes.extend(kind.write(plain, temporary, run))
        difference = _compare(plain, kind, temporary, form)
        text = model_card(
            plain,
            kind,
            out.name,
            fingerprint=fingerprint,
            difference=difference,
            notes=tuple(notes),
            run=run,
            measured=measured,
            licence=licence,
        )
        compared.append((difference, text))
        if kind.is_folder:
            (temporary / CARD).write_text(text, encoding="utf-8")

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        (write_folder_atomically if kind.is_folder else write_atomically)(out, write)
        ((difference, text),) = compared
        if not kind.is_folder:
            write_text_atomically(card, text)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}. Name another --out.") from error
    return Exported(out, card, difference, tuple(notes), kind.load(plain, str(out)), measured)


def _compare(encoder: ViTEncoder, kind: Format, path: Path, form: str) -> Difference:
    try:
        return verify(encoder, kind.read(encoder, path), f"a {form} export")
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise UserError(
            f"{encoder.what} could not be read back by {kind.library} from what was written "
            f"({in_a_line(error)}). Nothing is left of it; choose another --format, or another version of the "
            "library."
        ) from error


def _format(name: str) -> Format:
    if name not in _MODULES:
        raise UserError(
            f"There is no format '{name}'.{did_you_mean(name, FORMATS)} The formats are {', '.join(FORMATS)}."
        )
    kind: Format = import_module(f"flexpredict.export.{_MODULES[name]}").FORMAT
    return kind


def _resized(encoder: ViTEncoder, size: tuple[int, int]) -> ViTEncoder:
    """With positions for images of another size."""
    height, width = encoder.patch_size
    if height == width:
        check_patches(size, height)
    else:
        encoder.check_size(size)
    return ViTEncoder(
        encoder.encoder.resized((size[0] // height, size[1] // width)),
        encoder.name,
        encoder.what,
        spec=None if encoder.spec is None else replace(encoder.spec, image_size=size),
        found=encoder.found,
        pooling=encoder.pooling,
        mean=encoder.mean,
        std=encoder.std,
    ).eval()


def _run_of(name: str) -> Path | None:
    """The folder of the run that an encoder came from, where it is at hand."""
    path = Path(name).expanduser()
    folder = path if path.is_dir() else path.parent
    is_run = path.exists() and (folder / "config.yaml").is_file()
    return folder if is_run and (path.is_dir() or path.name == "encoder.safetensors") else None


def _check_place(kind: Format, form: str, out: Path, card: Path, overwrite: bool) -> None:
    """Refuse a place that has the wrong kind of name or holds something else."""
    if kind.suffixes and (out.is_dir() or not out.name.endswith(kind.suffixes)):
        raise UserError(
            f"--format {form} writes one file, and --out {out} does not name one that ends in {kind.suffixes[0]}. "
            f"Use --out {out / ('encoder' + kind.suffixes[0]) if out.is_dir() else str(out) + kind.suffixes[0]}."
        )
    if kind.is_folder and out.is_file():
        raise UserError(f"--format {form} writes a folder, and --out {out} is a file. Name a folder.")
    for path in (out, card):
        if path.exists() and not overwrite:
            raise UserError(f"{path} exists already. Replace it with --overwrite, or name another --out.")
    if kind.is_folder and out.is_dir():
        others = sorted(path.name for path in out.iterdir() if path.name not in (*kind.files, CARD))
        if others:
            raise UserError(
                f"{out} holds other things than an export ({others[0]}), so --overwrite does not delete it. Name "
                "another --out."
            )
