"""Turns SIGTERM into a KeyboardInterrupt, so that a request to end cleans up like Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# EX_TEMPFAIL of sysexits.h: everything is saved, and the same command continues. For jobs that a cluster requeues.
PREEMPTED = 75


class Terminated(KeyboardInterrupt):
    """Raised when SIGTERM arrives."""


def exit_code(interruption: KeyboardInterrupt) -> int:
    """As in shells: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interruption, Terminated) else signal.SIGINT)


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Within this context, SIGTERM raises `Terminated` in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Terminated

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, which alone may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
