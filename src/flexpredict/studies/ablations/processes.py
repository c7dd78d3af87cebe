"""Processes of runs: a few at a time, each with its part of the machine, stopped together, gone with their parent."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from flexpredict.cores import cores
from flexpredict.errors import UserError
from flexpredict.training.signals import Stop

INTERRUPTED = 130
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_WITHOUT_PARENT = 1.0


@dataclass(frozen=True)
class Task:
    """A run, or several short ones, that one process carries out.

    Args:
        log: file for what the process says.
        runs: folder and recipe of each, as plain values.
        data: images to train on.
        test: images to measure on; None where nothing is measured.
        measuring: what is measured, as plain values.
        nice: how much other processes come first, 0 to 19.
        begun: when the process was started.
    """

    log: Path
    runs: tuple[tuple[str, dict[str, Any]], ...]
    data: str | list[str]
    test: str | list[str] | None = None
    measuring: dict[str, Any] = field(default_factory=dict)
    nice: int = 0
    begun: float = 0.0

    def save(self) -> Path:
        path = self.log.with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> "Task":
        values = json.loads(path.read_text(encoding="utf-8"))
        runs = tuple((folder, recipe) for folder, recipe in values.pop("runs"))
        return cls(**{**values, "log": Path(values["log"]), "runs": runs})


def carry_out(tasks: Sequence[Task], at_a_time: int, stop: Stop) -> Iterator[tuple[Task, bool]]:
    """Each task as it ends, and whether it ran to its end (it does not when someone stops it).

    None is begun after one was stopped or failed, or after `stop` is requested; those that go on are asked to leave.
    """
    waiting = list(tasks)
    going: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or going:
            for slot in [slot for slot in range(at_a_time) if slot not in going and waiting]:
                task = waiting.pop(0)
                going[slot] = task, begin(task, slot, at_a_time)
            for slot, (task, process) in list(going.items()):
                code = process.poll()
                if code is None:
                    continue
                del going[slot]
                if code not in (0, INTERRUPTED, -signal.SIGTERM):
                    raise UserError(f"The run {Path(task.runs[0][0]).name} failed. {_last_words(task.log)}")
                yield task, code == 0
                if code:
                    return
            if stop.requested:
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        for _, process in going.values():
            process.terminate()  # it saves what it has done
        for _, process in going.values():
            process.wait()


def begin(task: Task, slot: int, at_a_time: int) -> "subprocess.Popen[bytes]":
    """Start the process. slot: which of those at a time it is, and so which part of the machine it has."""
    path = replace(task, begun=time.time()).save()
    with task.log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flexpredict.commands.ablate_task", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_share(slot, at_a_time),
            start_new_session=True,  # Ctrl-C is for us, who then ask each run once to save and leave
        )


def usual_jobs(device: torch.device) -> int:
    """Runs at a time: one for each core of a CPU, as threads that wait for each other waste a core that is busy."""
    return cores() if device.type == "cpu" else 1


def end_with_parent() -> None:
    """From now on, ask this process to stop as if by SIGTERM when its parent is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_WITHOUT_PARENT)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _share(slot: int, at_a_time: int) -> dict[str, str]:
    """An environment with this process's part of the cores and of the GPUs."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // at_a_time)))
    count = torch.cuda.device_count()
    if at_a_time > 1 and count >= at_a_time and "CUDA_VISIBLE_DEVICES" not in environment:
        each = count // at_a_time
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(slot * each, (slot + 1) * each)))
    return environment


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"Its last words: {' '.join(lines[-3:]) or 'none'} (all of them: {log})"
