"""Means over seeds with 95 % intervals, and paired differences to the baseline; as tables, Markdown and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass

from flexpredict.evaluation.results import mean_and_interval
from flexpredict.studies.ablations.measuring import LOCATION, NORMS
from flexpredict.studies.ablations.study import Arm, Study

_TWO_DIGITS = ("place R²", *NORMS.values())  # all others are in percent


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, half of its 95 % interval (None for one seed), and the values themselves."""

    mean: float
    half: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        mean, half = mean_and_interval(values)
        return cls(mean, half, tuple(values))

    @property
    def sign(self) -> int:
        """1 or -1 if the whole interval is on one side of zero, else 0."""
        if self.half is None or abs(self.mean) <= self.half:
            return 0
        return 1 if self.mean > 0 else -1

    def in_words(self, sign: str = "", digits: int = 1) -> str:
        number = f"{self.mean:{sign}.{digits}f}"
        return number if self.half is None else f"{number} ± {self.half:.{digits}f}"


@dataclass(frozen=True)
class Row:
    """Estimates of an arm, and of its paired differences to the baseline (empty for the baseline itself)."""

    arm: Arm
    numbers: dict[str, Estimate]
    differences: dict[str, Estimate]
    paper_difference: float | None


def summarize(study: Study, found: dict[str, list[dict[str, float]]]) -> list[Row]:
    """found: for each arm by name, the numbers of each seed in their order."""
    # Patches of a few pixels cannot be shifted by half, so an arm may lack a number that others have.
    every = [numbers for own in found.values() for numbers in own]
    names = [name for name in every[0] if all(name in numbers for numbers in every)]
    rows = []
    for arm in study.arms:
        seeds, base = found[arm.name], study.baseline(arm)
        paired = {
            name: [own[name] - other[name] for own, other in zip(seeds, found[base.name], strict=True)]
            for name in names
            if base is not arm
        }
        papers = (arm.paper, base.paper)
        rows.append(
            Row(
                arm,
                {name: Estimate.of([numbers[name] for numbers in seeds]) for name in names},
                {name: Estimate.of(values) for name, values in paired.items()},
                papers[0] - papers[1] if papers[0] is not None and papers[1] is not None and paired else None,
            )
        )
    return rows


def tables(study: Study, rows: list[Row]) -> dict[str, list[list[str]]]:
    """Tables by title, headings first. A difference whose interval excludes zero is **bold**."""
    names = list(rows[0].numbers)
    if not study.probes:
        return {"Norms at the end of training": _table(rows, names)}
    location = [name for name in names if name in LOCATION.values()]
    accuracy = [name for name in names if name not in location]
    return {
        "Accuracy (%)": _table(rows, accuracy, paper=any(row.arm.paper is not None for row in rows)),
        "Location (share and losses in points)": _table(rows, location),
    }


def _table(rows: list[Row], names: list[str], paper: bool = False) -> list[list[str]]:
    lines = [["arm", *(heading for name in names for heading in (name, "diff."))]]
    if paper:
        lines[0] += ["paper, linear 1 %", "diff."]
    for row in rows:
        cells = [row.arm.name]
        for name in names:
            cells += [row.numbers[name].in_words(digits=digits_of(name)), _difference(row, name)]
        if paper:
            cells += [
                "" if row.arm.paper is None else f"{row.arm.paper:.1f}",
                "" if row.paper_difference is None else f"{row.paper_difference:+.1f}",
            ]
        lines.append(cells)
    return lines


def _difference(row: Row, name: str) -> str:
    if name not in row.differences:
        return ""
    difference = row.differences[name]
    words = difference.in_words("+", digits_of(name))
    return f"**{words}**" if difference.sign else words


def digits_of(name: str) -> int:
    """Decimal places of a quantity."""
    return 2 if name in _TWO_DIGITS else 1


def table_rows(study: Study, rows: list[Row]) -> list[dict[str, object]]:
    """One row for each arm: means, paired differences, and half the 95 % interval of each."""
    table: list[dict[str, object]] = []
    for row in rows:
        against = study.baseline(row.arm).name if row.differences else ""
        numbers = {}
        for name, estimate in row.numbers.items():
            for what, found in ((name, estimate), (f"{name}, difference", row.differences.get(name))):
                numbers[what] = _cell(found.mean if found else None)
                numbers[f"{what}, half interval"] = _cell(found.half if found else None)
        table.append({**_facts(study, row), "against": against, **numbers, "paper": _cell(row.arm.paper)})
    return table


def seed_rows(study: Study, rows: list[Row], seeds: Sequence[int]) -> list[dict[str, object]]:
    """One row for each seed and arm, for computations of one's own."""
    return [
        {
            **_facts(study, row),
            "seed": seed,
            **{name: _cell(estimate.values[place]) for name, estimate in row.numbers.items()},
            "paper": _cell(row.arm.paper),
        }
        for row in rows
        for place, seed in enumerate(seeds)
    ]


def _facts(study: Study, row: Row) -> dict[str, object]:
    level = "" if row.arm.level is None else row.arm.level
    return {"study": study.name, "arm": row.arm.name, "level": level, "series": row.arm.series}


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
