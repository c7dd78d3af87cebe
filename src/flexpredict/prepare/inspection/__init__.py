"""`flexpredict inspect`: what is in a source, as numbers and as a picture, before anything is trained on it."""

import dataclasses
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from flexpredict.cores import cores
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.encoded_images import evenly_spaced
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import is_stream, open_images
from flexpredict.data.sources.streams import ImageStream, stream_sizes
from flexpredict.data.usual_sizes import usual_image_size, usual_patch_size
from flexpredict.errors import UserError
from flexpredict.files import write_atomically, write_text_atomically
from flexpredict.masking import check_masking
from flexpredict.prepare.inspection.contact_sheet import contact_sheet
from flexpredict.prepare.inspection.examination import Findings, examine_source, examine_stream
from flexpredict.prepare.inspection.passing_stream import PassingStream
from flexpredict.prepare.inspection.survey import Survey, duplicate_groups, take_survey
from flexpredict.prepare.inspection.table import print_survey
from flexpredict.progress import Counting
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.settings.masking import Masking

__all__ = ["Survey", "inspect"]

_MODELS_OWN_PATCH = 16  # of the models that pre-training chooses by itself


def inspect(
    source: str | Sequence[str] | ImageSource | ImageStream,
    out: Path,
    *,
    sample: int | None = None,
    workers: int | None = None,
    image_size: tuple[int, int] | None = None,
    patch_size: int | None = None,
    augmentation: Augmentation = PRESETS["stop"],
    masking: Masking | None = None,
    seed: int = 0,
    console: Console | None = None,
) -> Survey:
    """Decode all images of a source, say what they are, and write what was found into the folder `out`.

    Args:
        source: What `open_images` takes, or what it gives.
        out: Where survey.json, contact_sheet.png, broken.jsonl and duplicates.jsonl go.
        sample: Look at so many images only, evenly spaced; of a stream, at the first.
        workers: Processes that decode; one a core by default, 0 for none but this.
        image_size: Height and width of the crops that training would make; chosen as it would choose them by default.
        patch_size: Side of a patch, in pixels of a crop.
        augmentation: What happens to the crops.
        masking: How their patches are divided into context and targets; the default of training if None.
        seed: That of the crops and masks that are drawn.
        console: Where the table goes; the standard output by default.
    """
    masking, console = masking or Masking(), console or Console()
    for name, value, least in (("sample", sample, 1), ("workers", workers, 0), ("patch_size", patch_size, 1)):
        if value is not None and value < least:
            raise UserError(f"{name}={value} is too small. Use at least {least}.")
    with Counting(console, "listing", "images") as counting:
        opened = open_images(source, counting.add) if isinstance(source, str | Sequence) else source
    # What is wrong with the settings is said now, and not after an hour of decoding.
    image_size, patch_size = _sizes_for_training(opened, image_size, patch_size)
    if image_size is not None and patch_size is not None:
        _check_patches(image_size, patch_size, masking)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the folder {out}: {error.strerror}. Choose another.") from error

    processes = cores() if workers is None else workers
    seen = _look_at(opened, sample, processes, console)
    if not len(seen.findings.rows):
        raise UserError(f"There are no images in {opened.name}.")
    survey = take_survey(
        opened.name,
        seen.total,
        seen.findings,
        seen.duplicates,
        seen.problems,
        seen.labels,
        opened.classes,
        image_size,
        patch_size,
    )
    _write(out, survey, seen)
    print_survey(console, survey)
    written = ["survey.json", "broken.jsonl", "duplicates.jsonl"]
    if len(seen.shown) and image_size is not None and patch_size is not None:
        sheet = contact_sheet(
            seen.pictures, seen.shown, _subtitle(survey), image_size, patch_size, augmentation, masking, seed
        )
        # Compressed in a third of the usual time, to a file that is 6 % larger.
        write_atomically(out / "contact_sheet.png", lambda path: sheet.save(path, "PNG", compress_level=2))
        written.insert(0, "contact_sheet.png")
    console.print()
    console.print(f"Written to {out}: {', '.join(written)}", highlight=False, markup=False, soft_wrap=True)
    return survey


@dataclass(eq=False)
class _Seen:
    """A source or a stream after it was looked at; the two differ no more from here on."""

    findings: Findings
    total: int | None
    problems: list[UnreadableImage]
    labels: NDArray[np.integer] | None
    pictures: ImageSource
    shown: NDArray[np.int64]  # which of the pictures can be read
    duplicates: list[NDArray[np.int64]]
    names: dict[int, str]  # of the duplicates, by row of the findings


def _look_at(opened: ImageSource | ImageStream, sample: int | None, workers: int, console: Console) -> _Seen:
    if is_stream(opened):
        return _look_at_stream(opened, sample, workers, console)
    return _look_at_source(opened, sample, workers, console)


def _look_at_source(source: ImageSource, sample: int | None, workers: int, console: Console) -> _Seen:
    indices = np.arange(len(source)) if sample is None else np.array(evenly_spaced(len(source), sample))
    with Counting(console, "looking at", "images", len(indices)) as counting:
        findings = examine_source(source, indices, workers, counting.add)
    duplicates = duplicate_groups(findings)
    return _Seen(
        findings,
        len(source),
        source.problems,
        None if source.labels is None else source.labels.numpy(),
        source,
        indices[findings.rows["height"] > 0],
        duplicates,
        {row: source.describe(int(indices[row])) for row in _members(duplicates)},
    )


def _look_at_stream(stream: ImageStream, sample: int | None, workers: int, console: Console) -> _Seen:
    expected = min((count for count in (sample, stream.length) if count is not None), default=None)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as names_file:
        passing = PassingStream(stream, sample, names_file)
        with Counting(console, "looking at", "images", expected) as counting:
            findings = examine_stream(passing, workers, counting.add)
        duplicates = duplicate_groups(findings)
        names = passing.names(_members(duplicates))
    # A stream that was gone through to its end is no longer of unknown length.
    ended = sample is None or len(findings.rows) < sample
    pictures = passing.kept(findings.rows["height"] > 0)
    return _Seen(
        findings,
        len(findings.rows) if ended else stream.length,
        [],
        findings.rows["label"],
        pictures,
        np.arange(len(pictures)),
        duplicates,
        names,
    )


def _members(groups: list[NDArray[np.int64]]) -> Iterator[int]:
    return (row for group in groups for row in group.tolist())


def _sizes_for_training(
    opened: ImageSource | ImageStream, image_size: tuple[int, int] | None, patch_size: int | None
) -> tuple[tuple[int, int] | None, int | None]:
    """What pre-training would choose; nothing where no image can be read that would tell."""
    if image_size is None:
        sizes = stream_sizes(opened) if is_stream(opened) else opened.sizes()
        if not sizes:
            return None, None
        image_size = (usual_image_size(sizes),) * 2
    return image_size, patch_size or usual_patch_size(image_size, _MODELS_OWN_PATCH)


def _check_patches(image_size: tuple[int, int], patch_size: int, masking: Masking) -> None:
    if min(image_size) < 1 or any(side % patch_size for side in image_size):
        raise UserError(
            f"Images of {image_size[0]}x{image_size[1]} pixels cannot be cut into patches of"
            f" {patch_size}x{patch_size}. Choose an image_size that is a multiple of patch_size."
        )
    check_masking(masking, (image_size[0] // patch_size, image_size[1] // patch_size))


def _write(out: Path, survey: Survey, seen: _Seen) -> None:
    _write_lines(
        out / "broken.jsonl",
        ({"name": broken.name, "reason": broken.reason} for broken in (*seen.problems, *seen.findings.broken)),
    )
    _write_lines(
        out / "duplicates.jsonl",
        ({"images": [seen.names[row] for row in group.tolist()]} for group in seen.duplicates),
    )
    write_text_atomically(out / "survey.json", json.dumps(dataclasses.asdict(survey), indent=2) + "\n")


def _write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    write_atomically(path, write)


def _subtitle(survey: Survey) -> str:
    parts = [f"{survey.looked_at if survey.images is None else survey.images:,} images"]
    if survey.looked_at != survey.images:
        parts.append(f"{survey.looked_at:,} looked at")
    if survey.classes:
        parts.append(f"{survey.classes.count:,} classes")
    if survey.sizes:
        parts.append(f"median shorter side {survey.sizes.shorter_side.median:,.0f} pixels")
    if survey.broken:
        parts.append(f"broken: {survey.broken:,}")
    if survey.duplicates.superfluous:
        parts.append(f"superfluous copies: {survey.duplicates.superfluous:,}")
    return " · ".join(parts)
