"""What a person sees while a run goes on: a live bar on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flexpredict.progress import duration

_SECONDS_BETWEEN_LINES = 10.0


class TrainingProgress:
    """Loss, location share, images/s, data wait and time left. Silent on all ranks but the first."""

    def __init__(self, console: Console, steps: int, label: str = "pre-training") -> None:
        self.console = console
        self.steps, self.label = steps, label
        self._first_step: int | None = None
        self._numbers = ""
        self._started = self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal and not console.quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(label, total=steps, numbers="")

    def __enter__(self) -> "TrainingProgress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def numbers(
        self, loss: float, images_per_second: float, data_wait: float, location_share: float | None = None
    ) -> None:
        """New numbers to show."""
        located = "" if location_share is None else f"location share {location_share:.0%}"
        speed = f"{images_per_second:,.0f} images/s"
        parts = (f"loss {loss:.4f}", located, speed, f"data wait {data_wait:.0%}")
        self._numbers = " · ".join(filter(None, parts))

    def step(self, step: int) -> None:
        """`step` steps are done."""
        if self._first_step is None:
            # A resumed run does not start at nought, and the time left is reckoned from what it did itself.
            self._first_step = step - 1
        if self._bar:
            self._bar.update(self._task, completed=step, numbers=self._numbers)
            return
        now = time.monotonic()
        if now - self._last_line < _SECONDS_BETWEEN_LINES and step < self.steps:
            return
        self._last_line = now
        left = (now - self._started) / max(step - self._first_step, 1) * (self.steps - step)
        parts = (f"{self.label}: step {step}/{self.steps}", self._numbers, f"{duration(left)} left")
        self.console.print(" · ".join(filter(None, parts)), highlight=False)

    def warn(self, text: str) -> None:
        self.console.print(f"[yellow]Warning:[/yellow] {text}", highlight=False)
