"""How far the inspection is: a live bar on a terminal, a plain line every ten seconds elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0
_LABEL = "looking at images"


@contextmanager
def shown_progress(console: Console, total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives a function to be told how many more are done. total: None where nobody knows."""
    if not console.is_terminal:
        yield _Lines(console, total)
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(_LABEL, total=total)

    def advance(count: int) -> None:
        # Not before the first images are done: by then all workers were forked, which would copy the locks of the
        # bar's thread as they happen to be.
        bar.start()
        bar.advance(task, count)

    try:
        yield advance
    finally:
        bar.stop()


class _Lines:
    def __init__(self, console: Console, total: int | None) -> None:
        self.console, self.total, self.done = console, total, 0
        self.started = self.last_line = time.monotonic()

    def __call__(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.last_line < _SECONDS_BETWEEN_LINES:
            return
        self.last_line = now
        rate = self.done / (now - self.started)
        line = f"{_LABEL}: {self.done:,}"
        if self.total is not None:
            line += f" of {self.total:,}"
        line += f" · {rate:,.0f} images/s"
        if self.total is not None:
            line += f" · {timedelta(seconds=round((self.total - self.done) / rate))} left"
        self.console.print(line, highlight=False)
