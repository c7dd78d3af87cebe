"""Examines images, and writes what was found into a folder."""

import json
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from flexpredict.cores import cores
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.streams import ImageStream
from flexpredict.files import explained, write_atomically, write_json_atomically, write_lines_atomically
from flexpredict.prepare.contact_sheet import TrainingView, contact_sheet
from flexpredict.prepare.examination import examine_images
from flexpredict.prepare.inspect import InspectSettings
from flexpredict.prepare.survey import Classes, Sizes, Spread, Survey, survey_of
from flexpredict.showing import facts_table

_MOST_REASONS = 8


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect`: the survey, and the files that were written."""

    survey: Survey
    files: list[Path]

    @property
    def warnings(self) -> list[str]:
        return self.survey.warnings

    def tables(self) -> list[tuple[str, Table]]:
        """Facts; how large the images are; why some cannot be read."""
        tables = [("What is in these images:", self.table())]
        if self.survey.sizes:
            tables.append(("\nHow large they are:", size_table(self.survey.sizes, self.survey.classes)))
        if self.survey.reasons:
            tables.append(("\nWhy some cannot be read:", reason_table(self.survey.reasons)))
        return tables

    def table(self) -> Table:
        """One fact per line; empty facts are left out."""
        return facts_table({name: value for name, value in _facts(self.survey).items() if value})

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.survey), "warnings": self.survey.warnings}


def inspect_images(
    images: ImageSource | ImageStream, asked: InspectSettings, view: TrainingView | None, console: Console
) -> Inspection:
    """Examine images and write what was found. view: how training sees them; None if no image can be read."""
    out = Path(asked.out)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    examined = examine_images(images, asked.sample, cores() if asked.workers is None else asked.workers, console)
    survey = survey_of(examined, view.image_size if view else None, view.patch_size if view else None)
    names = ["survey.json", "broken.jsonl", "duplicates.jsonl"]
    if len(examined.shown) and view is not None:
        sheet = contact_sheet(examined.pictures, examined.shown, survey, view)
        names.insert(0, "contact_sheet.png")
        # Compressed in a third of the default time, to a file that is 6 % larger.
        write_atomically(out / names[0], lambda path: sheet.save(path, "PNG", compress_level=2))
    inspection = Inspection(survey, [out / name for name in names])
    write_json_atomically(out / "survey.json", inspection.to_dict())
    failures = (*examined.problems, *examined.findings.broken)
    broken = (json.dumps({"name": failure.name, "reason": failure.reason}) for failure in failures)
    write_lines_atomically(out / "broken.jsonl", broken)
    groups = (json.dumps({"images": group}) for group in examined.duplicates)
    write_lines_atomically(out / "duplicates.jsonl", groups)
    return inspection


def size_table(sizes: Sizes, classes: Classes | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for name in ("", "smallest", "5 %", "median", "95 %", "largest"):
        table.add_column(name, justify="right" if name else "left", style="" if name else "bold", no_wrap=True)
    table.add_row("shorter side", *_numbers(sizes.shorter_side))
    table.add_row("megapixels", *_numbers(sizes.megapixels))
    table.add_row("width / height", *_numbers(sizes.aspect))
    if classes:
        table.add_row("images per class", *_numbers(classes.images))
    return table


def reason_table(reasons: dict[str, int]) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    counted = list(reasons.items())
    others = sum(count for _, count in counted[_MOST_REASONS:])
    for reason, count in counted[:_MOST_REASONS] + ([("other reasons", others)] if others else []):
        table.add_row(f"{count:,}", Text(reason))
    return table


def _facts(survey: Survey) -> dict[str, str]:
    sizes, classes, duplicates = survey.sizes, survey.classes, survey.duplicates
    size = survey.image_size
    return {
        "source": survey.source,
        "images": images_in_words(survey),
        "formats": _counts(survey.formats.items()),
        "modes": _counts(survey.modes.items()),
        "of these": _occurring(
            (survey.grayscale, "without colors"),
            (survey.rotated, "turned upright by EXIF"),
            (survey.animated, "animated (the first frame counts)"),
        ),
        "sizes": _most_frequent(sizes) if sizes else "",
        "training": f"{size[0]}x{size[1]} pixels, patches of {survey.patch_size}" if size else "",
        "classes": _class_line(classes) if classes else "",
        "largest": _counts(classes.largest) if classes and _are_many(classes) else "",
        "smallest": _counts(classes.smallest) if classes and _are_many(classes) else "",
        "broken": _occurring((survey.broken, "cannot be read"), (survey.problems, "not listed (folders, shards)"))
        or "none",
        "duplicates": f"{duplicates.superfluous:,} superfluous · groups: {duplicates.groups:,}"
        if duplicates.groups
        else "none",
    }


def images_in_words(survey: Survey) -> str:
    """How many images there are and were examined, and their size on disk."""
    if survey.images is None:
        counted = f"{survey.examined:,} examined, of a stream of unknown length"
    elif survey.examined < survey.images:
        counted = f"{survey.images:,}, of which {survey.examined:,} were examined: all that follows is about these"
    else:
        counted = f"{survey.examined:,}, all examined"
    return f"{counted} · {decimal(survey.bytes)}"


def _most_frequent(sizes: Sizes) -> str:
    """Height x width, as everywhere here."""
    frequent = _counts((f"{height}x{width}", count) for height, width, count in sizes.most_frequent)
    if sizes.distinct == 1:
        return f"all {sizes.most_frequent[0][0]}x{sizes.most_frequent[0][1]}"
    often = "most often " if sizes.distinct > len(sizes.most_frequent) else ""
    return f"{sizes.distinct:,} different; {often}{frequent}"


def _class_line(classes: Classes) -> str:
    line = f"{classes.count:,}"
    if not classes.smallest:
        line += f": {_counts(classes.largest)}"
    elif not _are_many(classes):
        line += f" of {classes.images.largest:,.0f} images each"
    return line + (f" · {classes.unlabeled:,} images without a label" if classes.unlabeled else "")


def _are_many(classes: Classes) -> bool:
    """Too many to name all, and not all of one size."""
    return bool(classes.smallest) and classes.images.smallest < classes.images.largest


def _numbers(spread: Spread) -> list[str]:
    # Whole numbers as they are, others with three significant digits.
    return [f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}" for value in astuple(spread)]


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return " · ".join(f"{name} {count:,}" for name, count in counts)


def _occurring(*parts: tuple[int, str]) -> str:
    return " · ".join(f"{count:,} {what}" for count, what in parts if count)
