"""When a checkpoint is due by the clock: often enough to lose little, rarely enough to cost little."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 120.0
_MOST_OF_THE_TIME = 0.05


def seconds_between(cost: float) -> float:
    """Seconds between two checkpoints, if writing one takes `cost` seconds."""
    return max(_SECONDS, cost / _MOST_OF_THE_TIME)


class CheckpointTimer:
    """Remembers when the last checkpoint was written, and how long that took."""

    def __init__(self) -> None:
        self._cost, self._last = 0.0, time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._last >= seconds_between(self._cost)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Measure how long writing a checkpoint takes."""
        started = time.monotonic()
        yield
        self._last = time.monotonic()
        self._cost = self._last - started
