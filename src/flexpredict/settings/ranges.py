"""Ranges of settings: declared beside their defaults, checked in one place before anything is done."""

import dataclasses
from typing import Any

from flexpredict.errors import UserError


@dataclasses.dataclass(frozen=True)
class Range:
    """Which numbers a setting may have. None means no bound; a span is two numbers in ascending order."""

    above: float | None = None
    least: float | None = None
    most: float | None = None
    below: float | None = None
    span: bool = False

    def allows(self, value: Any) -> bool:
        """Whether a number, or each of several, is in this range. None, a value left open, is allowed."""
        if value is None:
            return True
        numbers = list(value) if isinstance(value, tuple | list) else [value]
        return all(number in self for number in numbers) and (not self.span or numbers == sorted(numbers))

    def __contains__(self, value: float) -> bool:
        """Infinity and not-a-number are in no range."""
        return (
            abs(value) < float("inf")
            and (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        words = {"above": "more than", "least": "at least", "most": "at most", "below": "less than"}
        bounds = {name: getattr(self, name) for name in words}
        text = " and ".join(f"{words[name]} {bound:g}" for name, bound in bounds.items() if bound is not None)
        return f"{text}, the smallest first and the largest second" if self.span else text


def ranged(default: Any, **bounds: Any) -> Any:
    """A field of a dataclass with a default and a `Range`: above=0, least=1, most=1, below=1, span=True."""
    metadata = {"range": Range(**bounds)}
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Checked:
    """A dataclass of settings that refuses values out of their ranges."""

    def __post_init__(self) -> None:
        check_ranges(self)


def check_ranges(settings: Any, group: str = "") -> None:
    """Refuse a dataclass of settings with a value out of its range, also in nested settings."""
    for field in dataclasses.fields(settings):
        name, value = f"{group}{field.name}", getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            check_ranges(value, f"{name}.")
        allowed = field.metadata.get("range")
        if allowed is not None and not allowed.allows(value):
            shown = list(value) if isinstance(value, tuple) else value
            raise UserError(f"{name}={shown} is out of range: it must be {allowed}.")
