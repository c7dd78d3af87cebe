"""The machine under a benchmark: what it is, how fast it multiplies matrices, and contenders timed in turns."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from flexpredict.randomness import normal, sample_keys, stream_key

Contender = Callable[[int], object]  # does its work for the round of this number


@dataclass(frozen=True)
class Spread:
    """The middle of some measurements, and the half of them around it."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles."""
    low, median, high = (float(value) for value in np.percentile(values, (25, 50, 75)))
    return Spread(median, low, high)


def take_turns(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in rounds 1, 2, ... after an untimed round 0.

    All take their turn in every round, so that whatever else the machine does meets all of them; each round begins
    with another one, so that none always comes after the same neighbor.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        contenders[name](0)
    for number in range(1, rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            contenders[name](number)
            seconds[name].append(time.perf_counter() - start)
    return seconds


class SquareProducts:
    """A contender that only multiplies large square float32 matrices: what any step could reach at the most."""

    def __init__(self, size: int = 2048, products: int = 3) -> None:
        self.left, self.right = normal(sample_keys(stream_key(0, "matrices"), torch.arange(2)), size * size).view(
            2, size, size
        )
        self.product = torch.empty(size, size)
        self.products = products
        self.flops = products * 2 * size**3

    def __call__(self, number: int) -> None:
        for _ in range(self.products):
            torch.mm(self.left, self.right, out=self.product)


def describe_machine() -> dict[str, Any]:
    """What the numbers of a benchmark depend on besides the code."""
    versions: dict[str, str | None] = {}
    for package in ("flexpredict", "torch", "timm", "lightly", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions,
    }


def announce_machine() -> Console:
    """Says what the machine is, warns if it has other things to do, and gives the console for what follows."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)  # rich assumes 80 columns, and the tables are wider
    facts = describe_machine()
    console.print(
        f"{facts['cpu']}, {facts['threads']} thread(s) of {facts['cores']} core(s), torch {torch.__version__}",
        highlight=False,
    )
    if facts["load"] > 0.5:
        console.print(f"[yellow]The machine is busy (load {facts['load']}): these numbers will mean little.[/yellow]")
    return console


def save_numbers(path: Path, machine: dict[str, Any], numbers: object) -> None:
    """Numbers and where they were measured, as JSON."""
    path.write_text(json.dumps({"machine": machine, "settings": numbers}, indent=2) + "\n", encoding="utf-8")


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
