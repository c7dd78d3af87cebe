"""Worker processes that read images: their results in order, and the image that a worker was reading when it died."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from flexpredict.errors import UserError

Result = TypeVar("Result")

# The memory that workers share with the main process has a line for each: its process id, and a name that ends in 0.
_PID = slice(0, 8)
_LONGEST_NAME = 1024
_SECONDS_TO_SAVE = 60
_SECONDS_TO_HEAR_OF_DEATH = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_name_in_shared_memory: NDArray[np.uint8] | None = None


class WorkerResults(Iterator[Result], Generic[Result]):
    """The results of worker processes, in order; without workers, this process computes them."""

    def __init__(
        self, dataset: "Dataset[Result | UserError]", work: Iterable[Any] | None, workers: int, remedy: str = ""
    ) -> None:
        """The dataset computes a result from each piece of work; an IterableDataset needs none.

        remedy: what to do after a worker has died, for the message.
        """
        self._lines = torch.zeros(workers, _PID.stop + _LONGEST_NAME, dtype=torch.uint8).share_memory_()
        self._remedy = remedy
        loader = DataLoader(
            dataset,
            batch_size=None,
            sampler=work,
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=partial(_begin_worker, self._lines),
            # Seeds the workers, which need no seed; without it, the global generator would be used.
            generator=torch.Generator(),
        )
        # Until a worker has handlers of its own, a signal would run those of the main process, and end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._loader = iter(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __next__(self) -> Result:
        with self.deaths_explained():
            result = next(self._loader)
        if isinstance(result, UserError):
            raise result
        return result  # type: ignore[no-any-return]

    @contextmanager
    def deaths_explained(self) -> Iterator[None]:
        """Name the image that a worker was reading when it died. A signal handler may raise that error anywhere."""
        try:
            yield
        except (RuntimeError, ConnectionError, EOFError) as raised:
            # A worker that dies while handing an image over just hangs up. Errors that workers raise name the worker.
            hung_up = (
                len(self._lines) > 0
                and not isinstance(raised, RuntimeError)
                and "DataLoader worker" not in str(raised)
            )
            error = _notice_of_death(raised) if hung_up else raised
            died = re.search(r"DataLoader worker \(pid(?:\(s\))? (\d+)", str(error))
            if died is None and not hung_up:
                raise
            signaled = re.search(r"killed by signal: (.+?)\.", str(error))
            image = self._image_of(int(died.group(1))) if died else ""
            raise UserError(
                f"A process that reads images died{f' ({signaled.group(1)})' if signaled else ''} "
                + (f"while it was reading {image}. " if image else "between two images. ")
                + "Either that file makes a decoder crash: move it away; or memory ran out: use fewer workers."
                + (f" {self._remedy}" if self._remedy else "")
            ) from error

    def _image_of(self, pid: int) -> str:
        for line in self._lines.numpy():
            if int.from_bytes(bytes(line[_PID]), "little") == pid:
                return os.fsdecode(bytes(line[_PID.stop :]).partition(b"\0")[0])
        return ""


class Computed(Dataset[Result | UserError], Generic[Result]):
    """A dataset of the results of a function, one for each piece of work."""

    def __init__(self, function: Callable[[Any], Result]) -> None:
        self._function = function

    def __getitem__(self, work: Any) -> Result | UserError:
        # Returned, not raised: an exception that crosses processes loses its message in a traceback.
        try:
            return self._function(work)
        except UserError as error:
            return error


def _notice_of_death(lost: Exception) -> Exception:
    """Wait for the error that torch's signal handler raises soon after a worker died: later, it comes anywhere."""
    try:
        time.sleep(_SECONDS_TO_HEAR_OF_DEATH)
    except RuntimeError as death:
        return death
    return lost


def set_current_image(name: str) -> None:
    """Call before each image is read, and with an empty name after the last. Does nothing without workers."""
    if _name_in_shared_memory is not None:
        text = os.fsencode(name)[: _LONGEST_NAME - 1] + b"\0"
        _name_in_shared_memory[: len(text)] = np.frombuffer(text, np.uint8)


def _begin_worker(lines: Tensor, worker: int) -> None:
    # Ctrl-C reaches workers as well, and each would print a traceback: the main process ends them.
    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    # A cluster sends SIGTERM to every process, but the main one needs batches until it has saved. Python also ends
    # child processes by SIGTERM, and then waits for them. So workers obey it, but later.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(_SECONDS_TO_SAVE))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    global _name_in_shared_memory  # noqa: PLW0603 (a process is one worker)
    line = lines[worker].numpy()
    line[_PID] = np.frombuffer(os.getpid().to_bytes(8, "little"), np.uint8)
    _name_in_shared_memory = line[_PID.stop :]
