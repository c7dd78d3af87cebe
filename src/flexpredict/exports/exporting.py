"""Encoders for other libraries: written, read back, compared, then put in place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.encoders.checkpoints.config_file import is_plain
from flexpredict.encoders.checkpoints.reading import read_checkpoint
from flexpredict.encoders.hugging_face_encoder import HuggingFaceEncoder
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.encoders.timm_encoder import TimmEncoder, weights_of_timm
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError, in_a_line
from flexpredict.exports import ExportSettings, hugging_face, official, programs, timm_folder
from flexpredict.exports.format import Format, outputs_of
from flexpredict.exports.model_card import Measured, collect_results, model_card
from flexpredict.exports.pushing import check_push, push
from flexpredict.exports.verification import Difference, verify
from flexpredict.files import explained, write_atomically, write_folder_atomically, write_text_atomically
from flexpredict.model.timm_parts import VisionTransformer, timm
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import one_image_size
from flexpredict.showing import SimpleResult

FORMATS = {
    "timm": timm_folder.FORMAT,
    "hf": hugging_face.FORMAT,
    "official": official.FORMAT,
    "onnx": programs.ONNX,
    "torch-export": programs.TORCH_EXPORT,
}
CARD = "README.md"


@dataclass(frozen=True)
class ExportResult(SimpleResult):
    """The result of `export`.

    Args:
        out: the file or folder.
        card: the model card.
        difference: between the features of the original and of the export.
        notes: about the export, a sentence each.
        load: a line of code that opens it.
        measured: results in the card.
        pushed: the address of the model on the Hugging Face Hub, if it was uploaded.
    """

    out: Path
    card: Path
    difference: Difference
    notes: tuple[str, ...]
    load: str
    measured: Measured
    pushed: str | None = None

    @property
    def files(self) -> list[Path]:
        return [self.out, self.card]

    def tables(self) -> list[tuple[str, None]]:
        """As text, because a table would break the line of code."""
        others = self.measured.of_other_weights
        left_out = f"; {others} of the same name were measured on other weights and left out" if others else ""
        lines = [
            f"Results in the card: {len(self.measured.results)}{left_out}",
            *self.notes,
            f"Largest difference to the original: {self.difference}",
            f"Load it: {self.load}",
            *([f"Uploaded: {self.pushed}"] if self.pushed else []),
        ]
        return [("\n".join(lines), None)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "out": str(self.out),
            "card": str(self.card),
            "difference": str(self.difference),
            "load": self.load,
            "results": len(self.measured.results),
            "notes": list(self.notes),
            "pushed": self.pushed,
        }


def write_export(encoder: ImageEncoder, asked: ExportSettings) -> ExportResult:
    """Write the encoder and its card, have the library read it back, and upload it if that is asked for."""
    out, kind, size = Path(asked.out), FORMATS[asked.format], one_image_size(asked.image_size)
    plain = _plain(encoder)
    run = _run_of(plain.name)
    fingerprint = encoder.fingerprint()  # of the encoder before it is resized: this is what evaluations record
    measured = collect_results(plain.name, fingerprint, None if asked.results is None else Path(asked.results))
    plain = plain if size is None else plain.resized(size)
    kind.check(plain)
    written: list[tuple[Difference, tuple[str, ...], str]] = []

    def write(temporary: Path) -> None:
        notes = kind.write(plain, temporary, run)
        difference = _compare(plain, kind, temporary, asked.format)
        text = model_card(
            plain,
            kind,
            out.name,
            fingerprint=fingerprint,
            difference=difference,
            notes=notes,
            run=run,
            measured=measured,
            license=asked.license,
        )
        written.append((difference, notes, text))
        if kind.is_folder:
            (temporary / CARD).write_text(text, encoding="utf-8")

    card = _card(kind, out)
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        (write_folder_atomically if kind.is_folder else write_atomically)(out, write)
        ((difference, notes, text),) = written
        if not kind.is_folder:
            write_text_atomically(card, text)
    pushed = None if asked.push is None else push(asked.push, out, card, private=asked.private)
    return ExportResult(out, card, difference, notes, kind.load(plain, str(out)), measured, pushed)


def _plain(encoder: ImageEncoder) -> ViTEncoder:
    """The same encoder with its weights part by part; refused if its features differ."""
    if isinstance(encoder, ViTEncoder):
        return encoder
    loaded = None
    if isinstance(encoder, TimmEncoder) and type(encoder.model) in (VisionTransformer, timm.models.beit.Beit):
        loaded = weights_of_timm(encoder.model, encoder.what, encoder.image_size)
    elif isinstance(encoder, HuggingFaceEncoder):
        loaded = _of_hugging_face(encoder)
    if loaded is None:
        raise UserError(
            f"{encoder.what} is not a plain vision transformer whose weights are known here part by part, so it "
            "cannot be exported. Take it from the library that it came from."
        )
    made = ViTEncoder.of(loaded, encoder.name, what=encoder.what, pooling=encoder.pooling)
    verify(made, lambda images: outputs_of(encoder, images), "a plain vision transformer")
    return made


def _of_hugging_face(encoder: HuggingFaceEncoder) -> LoadedWeights | None:
    """The weights in the files that transformers read; None if there are none or they are not plain."""
    from transformers.utils import cached_file

    try:
        folder = Path(cached_file(encoder.model.name_or_path, "config.json")).parent
    except OSError:  # it was not read from files
        return None
    return read_checkpoint(folder) if is_plain(folder) else None


def _compare(encoder: ViTEncoder, kind: Format, path: Path, format: str) -> Difference:
    try:
        return verify(encoder, kind.read(encoder, path), f"a {format} export")
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise UserError(
            f"{encoder.what} could not be read back by {kind.library} from what was written ({in_a_line(error)}). "
            "Nothing was kept; choose another format, or another version of the library."
        ) from error


def _run_of(name: str) -> RunFolder | None:
    """The run that an encoder was loaded from, by its name."""
    path = Path(name).expanduser()
    folder = RunFolder(path if path.is_dir() else path.parent)
    return folder if path in (folder.path, folder.encoder) and folder.config.is_file() else None


def _card(kind: Format, out: Path) -> Path:
    return out / CARD if kind.is_folder else out.with_name(f"{out.name}.{CARD}")


def check_place(asked: ExportSettings) -> None:
    """Refuse an `out` whose name does not fit the format, or that holds anything but an export."""
    if asked.push is not None:
        check_push(asked.push)
    format, out, kind = asked.format, Path(asked.out), FORMATS[asked.format]
    if kind.suffixes and (out.is_dir() or not out.name.endswith(kind.suffixes)):
        better = out / f"encoder{kind.suffixes[0]}" if out.is_dir() else f"{out}{kind.suffixes[0]}"
        raise UserError(
            f"format={format} writes one file, and out={out} does not name one that ends in {kind.suffixes[0]}. "
            f"Use out={better}."
        )
    if kind.is_folder and out.is_file():
        raise UserError(f"format={format} writes a folder, and out={out} is a file. Name a folder.")
    for path in (out, _card(kind, out)):
        if path.exists() and not asked.overwrite:
            raise UserError(f"{path} exists already. Replace it with overwrite=true, or choose another out.")
    if kind.is_folder and out.is_dir():
        others = sorted(path.name for path in out.iterdir() if path.name not in (*kind.files, CARD))
        if others:
            raise UserError(
                f"out={out} holds other things than an export ({others[0]}), so overwrite=true does not delete it. "
                "Choose another out."
            )
