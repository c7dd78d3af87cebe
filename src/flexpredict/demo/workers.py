"""Shares out tasks between processes, as many as there are cores.

Two processes of one thread each train two small encoders in at most three quarters of the time that one process of
two threads takes for one after the other, and suffer less from whatever else runs on the machine.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Thread

from flexpredict.cores import cores
from flexpredict.demo.recipe import Protocol
from flexpredict.demo.tasks import Task
from flexpredict.errors import UserError

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_STOP = 20.0  # a step and a checkpoint take less


def carry_out(tasks: Sequence[Task], protocol: Protocol, look: Callable[[], None]) -> None:
    """Do all tasks, calling `look` all the while. When it is interrupted, all processes end before it is left."""
    waiting = list(tasks)
    count = min(cores(), len(tasks))
    answers: SimpleQueue[tuple[_Worker, str]] = SimpleQueue()
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            workers.append(_Worker(max(1, cores() // count), protocol, answers))
            workers[-1].give(waiting.pop(0))
        while any(worker.task for worker in workers):
            with contextlib.suppress(Empty):
                worker, answer = answers.get(timeout=_SECONDS_BETWEEN_LOOKS)
                worker.finish(answer)
                if waiting:
                    worker.give(waiting.pop(0))
            look()
    finally:
        _stop(workers)


class _Worker:
    """A process, and the task that it has."""

    def __init__(self, threads: int, protocol: Protocol, answers: "SimpleQueue[tuple[_Worker, str]]") -> None:
        self.task: Task | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flexpredict.demo.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C is for the demo, which then stops its processes
        )
        self._send(json.dumps(asdict(protocol)))
        Thread(target=self._listen, args=(answers,), daemon=True).start()

    def give(self, task: Task) -> None:
        self.task = task
        self._send(task.as_json())

    def finish(self, answer: str) -> None:
        """Raise what went wrong with the task."""
        task, self.task = self.task, None
        if task is None:
            return
        if not answer:
            code = self.process.wait()
            raise UserError(
                f"The process that worked on {task} ended with code {code}"
                + (", as if it had been killed for want of memory" if code == -9 else "")
                + ". What was done is kept: the same command goes on."
            )
        if error := json.loads(answer)["error"]:
            raise UserError(f"{task}: {error}")

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # that the process has ended is heard where answers are awaited
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def _listen(self, answers: "SimpleQueue[tuple[_Worker, str]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self, line))
        answers.put((self, ""))


def _stop(workers: list[_Worker]) -> None:
    """Those who train save a checkpoint first; if it takes long or somebody is impatient, they are killed."""
    try:
        for worker in workers:
            worker.process.terminate()
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        for worker in workers:
            worker.process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
