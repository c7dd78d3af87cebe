"""What torch allocates on a CPU, as its profiler sees it."""

import itertools
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_of(step: Callable[[], object]) -> int:
    """The most bytes that are allocated at one time, besides those that were before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    most: int = max(itertools.accumulate(event.nbytes() for event in events))
    return most
