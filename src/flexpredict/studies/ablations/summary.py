"""Means over seeds with 95 % intervals, and paired differences to the baseline; as Markdown, CSV and JSON."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from flexpredict.evaluation.intervals import mean_and_interval
from flexpredict.studies.ablations.studies import Arm, Study


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, half of its 95 % interval (none for one seed), and the values themselves."""

    mean: float
    half: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        mean, half = mean_and_interval(values)
        return cls(mean, half, tuple(values))

    def in_words(self, sign: str = "", digits: int = 1) -> str:
        number = f"{self.mean:{sign}.{digits}f}"
        return number if self.half is None else f"{number} ± {self.half:.{digits}f}"


@dataclass(frozen=True)
class Row:
    """An arm: each quantity, and its difference to the baseline seed by seed."""

    arm: Arm
    numbers: dict[str, Estimate]
    differences: dict[str, Estimate]
    paper_difference: float | None


def summarise(study: Study, measured: dict[str, list[dict[str, float]]]) -> list[Row]:
    """measured: for each arm by name, the numbers of each seed in their order."""
    baseline = measured[study.arms[0].name]
    rows = []
    for arm in study.arms:
        seeds = measured[arm.name]
        names = list(seeds[0])
        paired = {name: [own[name] - base[name] for own, base in zip(seeds, baseline, strict=True)] for name in names}
        first = study.arms[0].paper
        rows.append(
            Row(
                arm,
                {name: Estimate.of([numbers[name] for numbers in seeds]) for name in names},
                {name: Estimate.of(paired[name]) for name in names},
                arm.paper - first if arm.paper is not None and first is not None else None,
            )
        )
    return rows


def table(study: Study, rows: list[Row]) -> list[list[str]]:
    """Cells, with a line of headings first."""
    digits = 2 if study.form == "norms" else 1
    names = list(rows[0].numbers)
    has_paper = any(row.arm.paper is not None for row in rows)
    headings = ["arm", *(heading for name in names for heading in (name, "diff."))]
    if has_paper:
        headings += ["paper, linear 1 %", "diff."]
    lines = [headings]
    for number, row in enumerate(rows):
        cells = [row.arm.name]
        for name in names:
            cells += [
                row.numbers[name].in_words(digits=digits),
                row.differences[name].in_words("+", digits) if number else "",
            ]
        if has_paper:
            cells += [
                "" if row.arm.paper is None else f"{row.arm.paper:.1f}",
                "" if row.paper_difference is None or not number else f"{row.paper_difference:+.1f}",
            ]
        lines.append(cells)
    return lines


def as_markdown(lines: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in lines[0][1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:])) + "\n"


def as_csv(study: Study, rows: list[Row]) -> str:
    """The table: one line an arm, with each mean, half its 95 % interval, and the paired difference likewise."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(rows[0].numbers)
    columns = ("", ", half interval", ", difference", ", difference, half interval")
    writer.writerow(["study", "arm", *(f"{name}{column}" for name in names for column in columns), "paper"])
    for row in rows:
        cells = [
            _cell(value)
            for name in names
            for estimate in (row.numbers[name], row.differences[name])
            for value in (estimate.mean, estimate.half)
        ]
        writer.writerow([study.name, row.arm.name, *cells, _cell(row.arm.paper)])
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def seeds_as_csv(study: Study, rows: list[Row], seeds: Sequence[int]) -> str:
    """One line a seed and arm, for those who want to compute something else."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(rows[0].numbers)
    writer.writerow(["study", "arm", "level", "series", "seed", *names, "paper"])
    for row in rows:
        for place, seed in enumerate(seeds):
            values = [f"{row.numbers[name].values[place]:.4f}" for name in names]
            level = "" if row.arm.level is None else row.arm.level
            paper = "" if row.arm.paper is None else row.arm.paper
            writer.writerow([study.name, row.arm.name, level, row.arm.series, seed, *values, paper])
    return text.getvalue()
