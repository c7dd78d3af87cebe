"""How many processor cores this process may use, and threads that use them well. Quick to import."""

import math
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path


def cores(root: Path = Path("/")) -> int:
    """The number of cores that this process is bound to and that its container may use.

    root: where /proc and /sys are.
    """
    return min([_bound_cores(), *_container_limits(root)])


def prepare_threads(environment: MutableMapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Set the variables that OpenMP reads when torch is imported, unless they are set already."""
    # Torch starts a thread for each core of the machine. In a container with a share of them, the threads would be
    # stopped over and over until the next period.
    if (available := cores(root)) < _bound_cores():
        environment.setdefault("OMP_NUM_THREADS", str(available))
    # Threads that wait for another one spin: in GNU's OpenMP 300,000 times, which takes milliseconds. That time is
    # lost if another process occupies the core of the awaited thread, so they sleep sooner. Even sooner (1,000) would
    # cost a tenth on an idle machine.
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "10000")


def _bound_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _container_limits(root: Path) -> Iterator[int]:
    """The limit of each Linux control group of this process, in whole cores."""
    for group in _control_groups(root):
        quota, period = _quota_and_period(group)
        if quota.isdecimal() and period.isdecimal() and int(period):  # no limit is "max", or -1
            yield max(1, math.ceil(int(quota) / int(period)))


def _control_groups(root: Path) -> Iterator[Path]:
    """Folders of the groups that limit processor time, from the innermost to the outermost."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue  # version 1 has a hierarchy for each resource; version 2 has one, without a name
        top = root / "sys/fs/cgroup" / controllers
        # In a container the path may be the host's, of which only the top is visible.
        inner = top / path.strip("/")
        yield from (group for group in (inner, *inner.parents) if group == top or top in group.parents)


def _quota_and_period(group: Path) -> tuple[str, str]:
    """Microseconds of processor time per period, and the length of the period in microseconds."""
    quota, _, period = _read(group / "cpu.max").partition(" ")  # version 2
    if not quota:
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    return quota, period


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
