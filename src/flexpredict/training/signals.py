"""Ctrl-C and a cluster's preemption mean: finish the step, save, leave."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from flexpredict.interruption import Terminated


@dataclass
class Stop:
    """Whether somebody asked the run to stop, and by which signal."""

    number: int | None = None

    @property
    def requested(self) -> bool:
        return self.number is not None

    def interruption(self) -> KeyboardInterrupt:
        """The exception to raise once everything is saved."""
        return Terminated() if self.number == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def stop_on_signal(on_interrupt: Callable[[], object] = lambda: None) -> Iterator[Stop]:
    """While it lasts, SIGINT, SIGTERM and SIGUSR1 only set `requested`; a second Ctrl-C interrupts at once.

    on_interrupt: called at the first Ctrl-C, to say so.
    """
    stop = Stop()

    def request(number: int, frame: FrameType | None) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.number = number
        if number == signal.SIGINT:
            on_interrupt()

    previous = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            previous[number] = signal.signal(number, request)
    except ValueError:
        pass  # not in the main thread, which alone may set signal handlers
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
