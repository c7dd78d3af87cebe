"""What a person sees while images are packed: a live bar on a terminal, plain lines elsewhere."""

import time
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0


class PackingProgress:
    """Images done, images/s and time left. `total` is None for a stream of unknown length."""

    def __init__(self, console: Console, total: int | None, done_before: int) -> None:
        self.console, self.total = console, total
        # The rate is that of this run, which may go on where another stopped.
        self._before = self._done = done_before
        self._skipped = 0
        self._started = self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal and not console.quiet:
            self._bar = Progress(
                TextColumn("packing"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TextColumn("· left"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task("", total=total, completed=done_before, numbers="")

    def __enter__(self) -> "PackingProgress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, images: int, skipped: int) -> None:
        """So many more were looked at, and so many of these left out."""
        self._done += images
        self._skipped += skipped
        now = time.monotonic()
        rate = (self._done - self._before) / max(now - self._started, 1e-3)
        numbers = f"· {rate:,.0f} images/s" + (f" · {self._skipped:,} unreadable" if self._skipped else "")
        if self._bar:
            self._bar.update(self._task, completed=self._done, numbers=numbers)
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self.console.print(f"packing: {self._of_total()} {numbers}{self._left(rate)}", highlight=False)

    def _of_total(self) -> str:
        return f"{self._done:,}" if self.total is None else f"{self._done:,}/{self.total:,}"

    def _left(self, rate: float) -> str:
        if self.total is None:
            return ""
        return f" · {timedelta(seconds=round((self.total - self._done) / rate))} left"
