"""Progress of anything that takes more than a few seconds: a live line on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_SECONDS_BEFORE_SHOWN = 1.0
_SECONDS_BETWEEN_LINES = 10.0


class Counting:
    """Shows how much is done, the total if known, the speed and the time left. Silent in the first second."""

    def __init__(self, console: Console, label: str, unit: str, total: int | None = None, done: int = 0) -> None:
        self._console, self._label, self._unit, self._total = console, label, unit, total
        self.done = self._before = done  # earlier work does not count for the speed
        self._note = ""
        self._started = self._last_line = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> "Counting":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def add(self, count: int, note: str = "") -> None:
        """Count this many more as done."""
        self.done += count
        self._note = note or self._note
        now = time.monotonic()
        if self._console.quiet or now - self._started < _SECONDS_BEFORE_SHOWN:
            return
        if self._console.is_terminal:
            self._show()
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(f"{self._label}: {self._numbers()}", highlight=False, markup=False)

    def _show(self) -> None:
        if self._bar is None:
            label, numbers = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[numbers]}")
            self._bar = Progress(
                label, BarColumn(), numbers, TimeElapsedColumn(), console=self._console, transient=True
            )
            self._task = self._bar.add_task(self._label, total=self._total, numbers="")
            self._bar.start()
        self._bar.update(self._task, completed=self.done, numbers=self._numbers())

    def _numbers(self) -> str:
        seconds = time.monotonic() - self._started
        parts = [f"{self.done:,}" + (f" of {self._total:,}" if self._total else "") + f" {self._unit}"]
        rate = (self.done - self._before) / seconds
        if rate and self.done != self._total:  # time after the last one would only lower the rate
            parts.append(f"{rate:,.0f}/s" if rate >= 1 else f"{duration(1 / rate)} each")
            if self._total:
                parts.append(f"{duration((self._total - self.done) / rate)} left")
        return " · ".join(filter(None, (*parts, self._note)))


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 41 min`, `5 d 3 h`."""
    whole, minutes, hours = round(seconds), round(seconds / 60), round(seconds / 3600)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"
