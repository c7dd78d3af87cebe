"""Shared parts of the benchmarks: facts about the machine, its matrix speed, and contenders timed in turns."""

import copy
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from torch import nn

from flexpredict.model.linear import Linear, linear
from flexpredict.randomness import normal, sample_keys, stream_key

Module = TypeVar("Module", bound=nn.Module)
Contender = Callable[[int], object]  # does its work for the round of this number


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some measurements."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """The median and quartiles of these values."""
    low, median, high = (float(value) for value in np.percentile(values, (25, 50, 75)))
    return Spread(median, low, high)


def take_turns(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of each contender in rounds 1, 2, ... after an untimed round 0.

    All take a turn in every round, so that other processes affect all of them; each round begins with another one, so
    that none always follows the same one.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        contenders[name](0)
    for number in range(1, rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = time.process_time()
            contenders[name](number)
            seconds[name].append(time.process_time() - start)
    return seconds


def plain_copy(network: Module) -> Module:
    """A copy with torch's own linear layers, as other packages have."""
    network = copy.deepcopy(network)
    for module in network.modules():
        if type(module) is Linear:
            object.__setattr__(module, "__class__", nn.Linear)
    return network


class SquareProducts:
    """A contender that only multiplies large square float32 matrices, with the library that our layers use."""

    def __init__(self, size: int = 2048, products: int = 3) -> None:
        self.left, self.right = normal(sample_keys(stream_key(0, "matrices"), torch.arange(2)), size * size).view(
            2, size, size
        )
        self.products = products
        self.flops = products * 2 * size**3

    def __call__(self, number: int) -> None:
        for _ in range(self.products):
            linear(self.left, self.right)


def describe_machine() -> dict[str, Any]:
    """Facts about the machine and its software that the numbers depend on."""
    versions: dict[str, str | None] = {}
    for package in ("flexpredict", "torch", "timm", "lightly", "stable-pretraining", "transformers", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "busy cores": round(_busy_cores(), 2),
        "python": platform.python_version(),
        "versions": versions,
    }


def announce_machine() -> Console:
    """Prints what the machine is, warns if it is busy, and returns the console for further output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)  # rich assumes 80 columns, and the tables are wider
    facts = describe_machine()
    console.print(
        f"{facts['cpu']}, {facts['threads']} thread(s) of {facts['cores']} core(s), torch {torch.__version__}",
        highlight=False,
    )
    if facts["busy cores"] > 0.2:
        console.print(
            f"[yellow]Other processes use {facts['busy cores']} core(s): these numbers will be unreliable.[/yellow]"
        )
    return console


def save_numbers(path: Path, machine: dict[str, Any], numbers: object) -> None:
    """Save numbers and the facts about the machine as JSON."""
    path.write_text(json.dumps({"machine": machine, "settings": numbers}, indent=2) + "\n", encoding="utf-8")


def _busy_cores(seconds: float = 0.5) -> float:
    """Number of cores busy while we sleep. The load average would still include an earlier benchmark."""
    stat = Path("/proc/stat")
    if not stat.is_file():
        return os.getloadavg()[0]

    def worked() -> int:
        user, nice, system = map(int, stat.read_text(encoding="utf-8").split(maxsplit=4)[1:4])  # in ticks, all cores
        return user + nice + system

    before = worked()
    time.sleep(seconds)
    return (worked() - before) / os.sysconf("SC_CLK_TCK") / seconds


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
