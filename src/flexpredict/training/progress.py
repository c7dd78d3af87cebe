"""The progress of a run: a live bar on a terminal, plain lines elsewhere."""

import os
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from flexpredict.progress import duration

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BEFORE_ESTIMATE = 20.0
_LONG = 3600.0
_SHORTEST_BAR = 8


class TrainingProgress:
    """Steps, time left, loss, speed and more, as much as fits the line. Silent on all ranks but the first.

    Args:
        console: to print on.
        steps: of the whole run.
        label: name of the activity.
        advice: what to say if the run turns out to take more than an hour.
    """

    def __init__(self, console: Console, steps: int, label: str = "pre-training", advice: str = "") -> None:
        self.console = console
        self.steps, self.label, self._advice = steps, label, advice
        self._first_step: int | None = None
        self._numbers: list[str] = []
        self._started = self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal and not console.quiet:
            line = TextColumn("{task.description}", markup=False)
            self._bar = Progress(BarColumn(bar_width=None), line, console=console, expand=True)
            self._task = self._bar.add_task(label, total=steps)

    def __enter__(self) -> "TrainingProgress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def numbers(self, record: Mapping[str, float], probed: str = "") -> None:
        """New numbers to show, the most important first. probed: the accuracy of the encoder, in words."""
        shown = {
            "loss": "loss {:.4f}",
            "location_share": "location share {:.0%}",
            "images_per_second": "{:,.0f} images/s",
            "data_wait": "data wait {:.0%}",
        }
        said = [text.format(record[name]) for name, text in shown.items() if name in record]
        self._numbers = [*said[:1], *filter(None, [probed]), *said[1:]]

    def step(self, step: int) -> None:
        """`step` steps are done."""
        now = time.monotonic()
        if self._first_step is None:
            # A resumed run does not start at 0: the time left is estimated from its own steps.
            self._first_step = step - 1
        elif step <= self._first_step:  # the run went back to a checkpoint
            self._first_step, self._started = step - 1, now
        left = (now - self._started) / (step - self._first_step) * (self.steps - step)
        self._say_if_long(now, left)
        parts = [f"step {step:,} of {self.steps:,}", f"{duration(left)} left", *self._numbers]
        if self._bar:
            self._bar.update(self._task, completed=step, description=fitting(parts, self.console.width))
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES or step == self.steps:
            self._last_line = now
            self.console.print(f"{self.label}: {' · '.join(parts)}", highlight=False)

    def stopping(self) -> None:
        """Ctrl-C was pressed. Called by a signal handler, so it writes past the console, which may be in use."""
        if not self.console.quiet:
            os.write(2, b"\nFinishing this step and saving. Ctrl-C again stops at once.\n")

    def warn(self, text: str) -> None:
        self.console.print(f"[yellow]Warning:[/yellow] {text}", highlight=False)

    def _say_if_long(self, now: float, left: float) -> None:
        """Say once that the run takes long, as soon as its time can be estimated."""
        if self._advice and now - self._started >= _SECONDS_BEFORE_ESTIMATE:
            if left >= _LONG:
                self.console.print(f"This run takes about {duration(left)} here. {self._advice}", highlight=False)
            self._advice = ""


def fitting(parts: list[str], width: int) -> str:
    """As many of the parts as fit on a line beside a short bar; the first ones always."""
    shown = parts[0]
    for part in parts[1:]:
        if len(shown) + 3 + len(part) > width - _SHORTEST_BAR - 1:
            break
        shown += f" · {part}"
    return shown
