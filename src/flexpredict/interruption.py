"""SIGTERM as an interruption: what Ctrl-C cleans up, a cluster's or a shell's request to end cleans up as well."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# EX_TEMPFAIL of sysexits.h: everything is saved, and the same command goes on. For jobs that a cluster requeues.
PREEMPTED = 75


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def exit_code(interruption: KeyboardInterrupt) -> int:
    """As shells count: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interruption, Terminated) else signal.SIGINT)


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """While it lasts, SIGTERM raises `Terminated` in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Terminated

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, where signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
