"""How many processor cores this process may use, which in a container are fewer than the machine has."""

import os


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
