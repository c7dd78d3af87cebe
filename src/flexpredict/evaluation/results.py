"""What an evaluation gives: numbers, and everything that is needed to get them again."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from flexpredict.showing import numbers_table

# Student's t at 97.5 %, for 1, 2, … degrees of freedom; above, about 1 + 1.21 / freedom times the normal quantile.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.960


@dataclass
class Result:
    """One encoder on one task."""

    task: str  # "probe", "davis", "clevr count" ...
    encoder: str  # what it is, in words
    data: str
    numbers: dict[str, float]  # accuracies in percent
    protocol: dict[str, Any]  # the encoder's fingerprint, layers, pooling, image size, seeds, counts, settings
    details: dict[str, Any] = field(default_factory=dict)  # per class, per sequence, per subset
    title: str = "Accuracy on the test images, frozen encoder (%)"
    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """One line for each number."""
        return numbers_table({name: {self.data: number} for name, number in self.shown_numbers().items()})

    def tables(self) -> list[tuple[str, Table]]:
        """With a title that names the encoder."""
        return [(self.full_title(), self.table())]

    def full_title(self) -> str:
        """With the encoder, and with settings other than the defaults."""
        settings = self.protocol.get("settings")
        return f"{self.title}: {self.encoder}{f', {settings}' if settings else ''}"

    def shown_numbers(self) -> dict[str, str]:
        """Each number, with its 95 % interval where it has one."""
        shown = {}
        for name, value in self.numbers.items():
            interval = self.details.get(name, {}).get("interval_95")
            shown[name] = f"{value:.2f}" if interval is None else f"{value:.2f} ± {interval:.2f}"
        return shown

    def to_dict(self) -> dict[str, Any]:
        names = ("task", "encoder", "data", "numbers", "protocol", "details")
        return {name: getattr(self, name) for name in names}


@dataclass
class Results:
    """One encoder on several tasks."""

    results: list[Result]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]

    @property
    def files(self) -> list[Path]:
        return list(dict.fromkeys(path for result in self.results for path in result.files))

    @property
    def warnings(self) -> list[str]:
        return list(dict.fromkeys(warning for result in self.results for warning in result.warnings))

    def table(self) -> Table:
        """One line for each task or, where the task is the same, for each data set."""
        if len(self.results) == 1:
            return self.results[0].table()
        by_task = len({result.task for result in self.results}) == len(self.results)
        return numbers_table(
            {result.task if by_task else result.data: result.shown_numbers() for result in self.results}
        )

    def tables(self) -> list[tuple[str, Table]]:
        return [(self.results[0].full_title(), self.table())]

    def to_dict(self) -> dict[str, Any]:
        return {"results": [result.to_dict() for result in self.results]}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and half the width of its 95 % interval (None for a single value)."""
    freedom = len(values) - 1
    mean = sum(values) / len(values)
    if freedom == 0:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / freedom)
    quantile = _T[freedom - 1] if freedom <= len(_T) else _NORMAL * (1 + 1.21 / freedom)
    return mean, quantile * deviation / math.sqrt(len(values))
