"""The survey as a person reads it, in 80 columns, on a terminal or in a pipe."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flexpredict.prepare.inspection.survey import Classes, Sizes, Spread, Survey
from flexpredict.showing import facts_table

_WIDTH = 80
_REASONS = 8


def print_survey(console: Console, survey: Survey) -> None:
    """All tables, then the warnings."""
    width = min(_WIDTH, console.width)
    console.print(fact_table(survey), width=width, highlight=False, soft_wrap=False)
    if survey.sizes:
        console.print()
        console.print(_size_table(survey.sizes, survey.classes), width=width, highlight=False, soft_wrap=False)
    if survey.reasons:
        console.print()
        console.print(_reason_table(survey.reasons), width=width, highlight=False, soft_wrap=False)
    for warning in survey.warnings:
        console.print()
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}", width=width, highlight=False, soft_wrap=False)


def fact_table(survey: Survey) -> Table:
    """What was found, a line for each fact."""
    return facts_table({name: value for name, value in _facts(survey).items() if value})


def _facts(survey: Survey) -> dict[str, str]:
    """Name and value of each line; lines without a value are left out."""
    sizes, classes, duplicates = survey.sizes, survey.classes, survey.duplicates
    return {
        "source": survey.source,
        "images": _images(survey),
        "formats": _counts(survey.formats.items()),
        "modes": _counts(survey.modes.items()),
        "of these": _list(
            (survey.colourless, "without colours"),
            (survey.turned, "turned upright by EXIF"),
            (survey.animated, "animated (the first frame counts)"),
        ),
        "sizes": _most_frequent(sizes) if sizes else "",
        "training": f"{survey.image_size[0]}x{survey.image_size[1]} pixels, patches of {survey.patch_size}"
        if survey.image_size
        else "",
        "classes": _class_line(classes) if classes else "",
        "largest": _counts(classes.largest) if classes and _are_many(classes) else "",
        "smallest": _counts(classes.smallest) if classes and _are_many(classes) else "",
        "broken": _list((survey.broken, "cannot be read"), (survey.problems, "not listed (folders, shards)"))
        or "none",
        "duplicates": f"{duplicates.superfluous:,} superfluous · groups: {duplicates.groups:,}"
        if duplicates.groups
        else "none",
    }


def _images(survey: Survey) -> str:
    if survey.images is None:
        counted = f"{survey.looked_at:,} looked at, of a stream of unknown length"
    elif survey.looked_at < survey.images:
        counted = f"{survey.images:,}, of which {survey.looked_at:,} were looked at: what follows is of those"
    else:
        counted = f"{survey.looked_at:,}, all looked at"
    return f"{counted} · {_weight(survey.bytes)}"


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
    return line + (f" · {classes.unlabelled:,} images without a label" if classes.unlabelled else "")


def _are_many(classes: Classes) -> bool:
    """Too many to name all, and not all of one size."""
    return bool(classes.smallest) and classes.images.smallest < classes.images.largest


def _size_table(sizes: Sizes, classes: Classes | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for name in ("", "smallest", "5 %", "median", "95 %", "largest"):
        table.add_column(name, justify="right" if name else "left", style="" if name else "bold", no_wrap=True)
    table.add_row("shorter side", *_numbers(sizes.shorter_side))
    table.add_row("megapixels", *_numbers(sizes.megapixels))
    table.add_row("width / height", *_numbers(sizes.aspect))
    if classes:
        table.add_row("images a class", *_numbers(classes.images))
    return table


def _reason_table(reasons: dict[str, int]) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column("images", justify="right", no_wrap=True)
    table.add_column("why they cannot be read", overflow="fold")
    table.add_row("[bold]broken[/bold]", "[bold]why[/bold]")
    for reason, count in list(reasons.items())[:_REASONS]:
        table.add_row(f"{count:,}", escape(reason))
    others = sum(list(reasons.values())[_REASONS:])
    if others:
        table.add_row(f"{others:,}", "for other reasons")
    return table


def _numbers(spread: Spread) -> list[str]:
    values = (spread.smallest, spread.low, spread.median, spread.high, spread.largest)
    # Whole numbers as they are, others with three digits that mean something.
    return [f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}" for value in values]


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return " · ".join(f"{name} {count:,}" for name, count in counts)


def _list(*parts: tuple[int, str]) -> str:
    return " · ".join(f"{count:,} {what}" for count, what in parts if count)


def _weight(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
