"""Examines images, and writes what was found into a folder."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.streams import ImageStream
from flexpredict.errors import UserError
from flexpredict.files import write_atomically, write_text_atomically
from flexpredict.prepare.inspection.contact_sheet import TrainingView, contact_sheet
from flexpredict.prepare.inspection.examined import examine_images
from flexpredict.prepare.inspection.survey import Survey, survey_of
from flexpredict.prepare.inspection.tables import facts_table, reason_table, size_table


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found and wrote."""

    survey: Survey
    files: list[Path]

    @property
    def warnings(self) -> list[str]:
        return self.survey.warnings

    def tables(self) -> list[tuple[str, Table]]:
        """Facts; how large the images are; why some cannot be read."""
        tables = [("What is in these images:", facts_table(self.survey))]
        if self.survey.sizes:
            tables.append(("\nHow large they are:", size_table(self.survey.sizes, self.survey.classes)))
        if self.survey.reasons:
            tables.append(("\nWhy some cannot be read:", reason_table(self.survey.reasons)))
        return tables

    def table(self) -> Table:
        return facts_table(self.survey)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.survey), "warnings": self.survey.warnings}


def inspect_images(
    images: ImageSource | ImageStream,
    out: Path,
    view: TrainingView | None,
    *,
    sample: int | None,
    workers: int,
    console: Console,
) -> Inspection:
    """Examine images and write what was found. view: how training sees them; None if no image can be read."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the folder out={out}: {error.strerror}. Choose another.") from error
    examined = examine_images(images, sample, workers, console)
    survey = survey_of(examined, view.image_size if view else None, view.patch_size if view else None)
    names = ["survey.json", "broken.jsonl", "duplicates.jsonl"]
    if len(examined.shown) and view is not None:
        sheet = contact_sheet(examined.pictures, examined.shown, survey, view)
        names.insert(0, "contact_sheet.png")
        # Compressed in a third of the default time, to a file that is 6 % larger.
        write_atomically(out / names[0], lambda path: sheet.save(path, "PNG", compress_level=2))
    inspection = Inspection(survey, [out / name for name in names])
    write_text_atomically(out / "survey.json", json.dumps(inspection.to_dict(), indent=2) + "\n")
    failures = (*examined.problems, *examined.findings.broken)
    _write_lines(out / "broken.jsonl", ({"name": failure.name, "reason": failure.reason} for failure in failures))
    groups = ({"images": [examined.names[row] for row in group.tolist()]} for group in examined.duplicates)
    _write_lines(out / "duplicates.jsonl", groups)
    return inspection


def _write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    write_atomically(path, write)
