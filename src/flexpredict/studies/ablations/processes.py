"""Carries out runs in processes: a few at a time, each with its share of the machine; they stop with their parent."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from flexpredict.cores import cores, prepare_threads
from flexpredict.errors import UserError
from flexpredict.training.signals import Stop

Data = str | list[str]
Baseline = Literal["untrained", "raw pixels"]
INTERRUPTED = 130
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_SIGNALS = 1.0


@dataclass(frozen=True)
class TaskRun:
    """A run, as plain values."""

    folder: str
    recipe: dict[str, Any]
    baseline: Baseline | None = None  # what to measure instead of a trained encoder
    measured: bool = True

    @property
    def name(self) -> str:
        return Path(self.folder).name


@dataclass(frozen=True)
class Task:
    """Runs that one process carries out."""

    log: Path  # file for what the process prints
    runs: tuple[TaskRun, ...]  # one, or several short ones
    data: Data  # images to train on
    test: Data | None = None  # images to measure on; None if nothing is measured
    measuring: dict[str, Any] = field(default_factory=dict)  # what is measured, as plain values
    nice: int = 0  # niceness of the process, 0 to 19
    begun: float = 0.0  # when the process was started

    def save(self) -> Path:
        path = self.log.with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> "Task":
        values = json.loads(path.read_text(encoding="utf-8"))
        runs = tuple(TaskRun(**run) for run in values.pop("runs"))
        return cls(**{**values, "log": Path(values["log"]), "runs": runs})


def carry_out(
    tasks: Sequence[Task], at_a_time: int, stop: Stop, look: Callable[[list[Task]], None] = lambda going: None
) -> Generator[tuple[Task, bool], None, None]:
    """Yield each task when it ends, and whether it was finished (False if it was stopped).

    Once a task is stopped or fails, or `stop` is requested, no more are started and the others are asked to end.
    `look` is called with the running tasks several times a second.
    """
    waiting = list(tasks)
    going: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or going:
            free = [slot for slot in range(at_a_time) if slot not in going]
            for slot in free[: len(waiting)]:
                task = waiting.pop(0)
                going[slot] = task, begin(task, slot, at_a_time)
            for slot, (task, process) in list(going.items()):
                code = process.poll()
                if code is None:
                    continue
                del going[slot]
                if code not in (0, INTERRUPTED, -signal.SIGTERM):
                    raise UserError(f"The run {task.runs[0].name} failed. {_last_words(task.log, code)}")
                yield task, code == 0
                if code:
                    return
            if stop.requested:
                return
            look([task for task, _ in going.values()])
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        _end([process for _, process in going.values()])


def _end(processes: list["subprocess.Popen[bytes]"]) -> None:
    """Ask processes to end: one that is training saves first, one that is measuring ends at once."""
    while processes:
        for process in processes:
            process.terminate()  # again and again: a process that was saving may go on to measure
        deadline = time.monotonic() + _SECONDS_BETWEEN_SIGNALS
        while processes and time.monotonic() < deadline:
            processes = [process for process in processes if process.poll() is None]
            time.sleep(0.01 if processes else 0.0)


def begin(task: Task, slot: int, at_a_time: int) -> "subprocess.Popen[bytes]":
    """Start the process. slot: its number among simultaneous processes, which decides its cores and GPUs."""
    path = replace(task, begun=time.time()).save()
    with task.log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flexpredict.commands.ablate_task", str(path), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_share(slot, at_a_time),
            start_new_session=True,  # Ctrl-C must reach only this process, which then asks each run to save and end
        )


def usual_jobs(device: torch.device) -> int:
    """Runs at a time: one for each core of a CPU, since threads that wait for each other waste busy cores."""
    return cores() if device.type == "cpu" else 1


def end_with(parent: int) -> None:
    """Once the parent is gone (perhaps already), send SIGTERM to this process until it stops."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        while True:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_SECONDS_BETWEEN_SIGNALS)

    threading.Thread(target=watch, daemon=True).start()


def give_way(nice: int) -> None:
    """Let other processes go first. nice: 0 to 19, the higher the lower the priority."""
    if not nice:
        return
    os.nice(nice)
    # With autogroups, Linux applies niceness only inside a session, and each run is a session of its own.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def _share(slot: int, at_a_time: int) -> dict[str, str]:
    """The environment of a process, with its share of the cores and GPUs."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // at_a_time)))
    environment.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as the command line does before it imports torch
    prepare_threads(environment)
    count = torch.cuda.device_count()
    if at_a_time > 1 and count >= at_a_time and "CUDA_VISIBLE_DEVICES" not in environment:
        each = count // at_a_time
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(slot * each, (slot + 1) * each)))
    return environment


def _last_words(log: Path, code: int) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    killed = "It was killed, perhaps because memory ran out. " if code == -signal.SIGKILL else ""
    return f"{killed}Its log ends with: {' '.join(lines[-3:]) or 'nothing'} (whole log: {log})"
