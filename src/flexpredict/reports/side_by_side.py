"""Settings and results of several runs side by side, with differences marked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flexpredict.reports.numbers import format_number, said
from flexpredict.runs.run_record import flat

_MOST_ROWS = 2000  # of settings: a recipe has about a hundred
_NOT_BETTER = re.compile(r"lost|decay|error|share|place R²|RMSE|AbsRel")  # results where more is not better


@dataclass(frozen=True)
class Row:
    """A name and its value in each run. best: which runs have the highest value, for results where more is better."""

    name: str
    values: tuple[str, ...]
    best: tuple[bool, ...] = ()

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class Group:
    """Rows under a title, which may be empty."""

    title: str
    rows: tuple[Row, ...]

    @property
    def differs(self) -> bool:
        return any(row.differs for row in self.rows)


def setting_groups(settings: Sequence[Mapping[str, Any]]) -> list[Group]:
    """A group for each nested part of the settings, after one for all other settings."""
    names = list(dict.fromkeys(str(name) for one in settings for name in one))
    nested = [name for name in names if any(isinstance(one.get(name), dict) and one[name] for one in settings)]
    alone = [_row(name, [one.get(name, _ABSENT) for one in settings]) for name in names if name not in nested]
    groups = [Group("", tuple(alone))] if alone else []
    for name in nested:
        parts = [dict(flat(part)) if isinstance(part := one.get(name), dict) else {} for one in settings]
        inner = list(dict.fromkeys(key for part in parts for key in part))[:_MOST_ROWS]
        groups.append(Group(name, tuple(_row(key, [part.get(key, _ABSENT) for part in parts]) for key in inner)))
    return groups


def result_groups(results: Sequence[Mapping[str, Any]]) -> list[Group]:
    """results: for each run, numbers by name; `probe, birds: 20-NN` goes into the group `probe, birds`."""
    names = dict.fromkeys(name for one in results for name in one)
    groups: dict[str, list[Row]] = {}
    for name in names:
        values = [one.get(name) for one in results]
        numbers = [value for value in values if isinstance(value, float | int) and not isinstance(value, bool)]
        highest = max(numbers, default=None)
        ranked = len(numbers) > 1 and not _NOT_BETTER.search(name)
        best = tuple(ranked and value == highest for value in values)
        title, _, short = name.rpartition(": ")
        groups.setdefault(title, []).append(Row(short, tuple(_written(value) for value in values), best))
    return [Group(title, tuple(rows)) for title, rows in groups.items()]


_ABSENT = object()


def _row(name: str, values: Sequence[Any]) -> Row:
    return Row(str(name), tuple("" if value is _ABSENT else said(value) for value in values))


def _written(value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else said(value)
    return f"{value:.2f}" if 1 <= abs(value) < 1000 or value == 0 else format_number(value, 4)
