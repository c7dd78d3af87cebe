"""Values over steps in bounded memory, however long the run."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]  # step, value
_step, _value = operator.itemgetter(0), operator.itemgetter(1)
MOST_BUCKETS = 300  # two extremes each: at most 600 points are drawn
LARGEST = 1e100  # beyond this a number has diverged, and arithmetic on the axis would overflow


@dataclass(frozen=True, slots=True)
class Bucket:
    """A stretch of consecutive points, remembered by its extremes and its mean."""

    start: float  # its first step
    extremes: tuple[Point, ...]  # lowest and highest in the order of their steps; empty if none was finite
    count: int  # of finite points, as are the two totals
    step_total: float
    value_total: float
    gaps: int  # points that were not finite
    gap_step: float  # step of the first one

    @property
    def mean(self) -> Point:
        return self.step_total / self.count, self.value_total / self.count


@dataclass
class Series:
    """Values over steps, streamed: the longer the run the wider each bucket, so memory stays the same."""

    first: float | None = None  # first finite value
    last: float | None = None  # last value, finite or not
    _closed: list[Bucket] = field(default_factory=list)
    _open: list[Point] = field(default_factory=list)
    _width: int = 1
    _latest: float = -math.inf

    def add(self, step: float, value: float) -> None:
        if step <= self._latest:
            self._rewind(step)
        self._latest = step
        self.last = value
        if self.first is None and is_finite(value):
            self.first = value
        self._open.append((step, value))
        if len(self._open) >= self._width:
            self._closed.append(_bucket(self._open))
            self._open = []
            if len(self._closed) >= MOST_BUCKETS:
                self._closed = [_merge(a, b) for a, b in zip(self._closed[::2], self._closed[1::2], strict=True)]
                self._width *= 2

    @property
    def buckets(self) -> list[Bucket]:
        return [*self._closed, _bucket(self._open)] if self._open else list(self._closed)

    def points(self) -> list[Point]:
        """The points of the raw line: every finite point of a short series, the extremes of a long one."""
        return [point for bucket in self.buckets for point in bucket.extremes]

    def _rewind(self, step: float) -> None:
        """Drop points from this step on: a resumed run logs the steps since its checkpoint again."""
        while self._open and self._open[-1][0] >= step:
            self._open.pop()
        while self._closed and self._closed[-1].start >= step:
            self._closed.pop()


def is_finite(value: float) -> bool:
    return -LARGEST < value < LARGEST


def _bucket(points: Sequence[Point]) -> Bucket:
    finite = [point for point in points if -LARGEST < point[1] < LARGEST]
    gaps = [] if len(finite) == len(points) else [step for step, value in points if not is_finite(value)]
    return Bucket(
        start=points[0][0],
        extremes=_extremes(finite),
        count=len(finite),
        step_total=sum(map(_step, finite)),
        value_total=sum(map(_value, finite)),
        gaps=len(gaps),
        gap_step=gaps[0] if gaps else math.nan,
    )


def _merge(a: Bucket, b: Bucket) -> Bucket:
    return Bucket(
        start=a.start,
        extremes=_extremes(a.extremes + b.extremes),
        count=a.count + b.count,
        step_total=a.step_total + b.step_total,
        value_total=a.value_total + b.value_total,
        gaps=a.gaps + b.gaps,
        gap_step=a.gap_step if a.gaps else b.gap_step,
    )


def _extremes(points: Sequence[Point]) -> tuple[Point, ...]:
    if not points:
        return ()
    return tuple(sorted({min(points, key=_value), max(points, key=_value)}))
