"""Which image each worker process is reading, kept where it can still be read after the worker has died."""

import os
import re
import signal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LONGEST = 1024
_SECONDS_TO_SAVE = 60
_PID = slice(0, 8)

_mine: NDArray[np.uint8] | None = None


def new_board(workers: int) -> Tensor:
    """One line a worker, in memory that they share with the main process."""
    board = torch.zeros(workers, _PID.stop + _LONGEST, dtype=torch.uint8)
    board.share_memory_()
    return board


def begin_worker(board: Tensor, worker: int) -> None:
    """What a process that reads images does first: from now on it is `worker`."""
    # Ctrl-C reaches workers as well, and each would print a traceback: the main process ends them.
    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    # A cluster sends SIGTERM to every process, and the main one needs batches until it has saved; but it is also how
    # Python ends what is left of its children, and waits for them: so obeyed, but later.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(_SECONDS_TO_SAVE))
    global _mine  # noqa: PLW0603 (a process has one reader)
    line = board[worker].numpy()
    line[_PID] = np.frombuffer(os.getpid().to_bytes(8, "little"), np.uint8)
    _mine = line[_PID.stop :]


def now_reading(name: str) -> None:
    """Called before each image. Does nothing in the main process, whose death nobody survives to report."""
    if _mine is not None:
        text = os.fsencode(name)[: _LONGEST - 1] + b"\0"
        _mine[: len(text)] = np.frombuffer(text, np.uint8)


def explained(error: RuntimeError, board: Tensor) -> str | None:
    """How one of a DataLoader's workers died and over which image, if that is what the error is about."""
    died = re.search(r"DataLoader worker \(pid(?:\(s\))? (\d+)", str(error))
    if died is None:
        return None
    image = last_read(board, int(died.group(1)))
    signalled = re.search(r"killed by signal: (.+?)\.", str(error))
    return (
        f"A process that reads images died{f' ({signalled.group(1)})' if signalled else ''} "
        + (f"while it was reading {image}. " if image else "between two images. ")
        + "Either that file makes a decoder crash: move it away; or memory ran out: use fewer workers."
    )


def last_read(board: Tensor, pid: int) -> str:
    """What the worker with this process id was reading; empty if it was between two images."""
    for line in board.numpy():
        if int.from_bytes(bytes(line[_PID]), "little") == pid:
            return os.fsdecode(bytes(line[_PID.stop :]).partition(b"\0")[0])
    return ""
