"""Which image each worker process is reading, kept where it can still be read after the worker has died."""

import os

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LONGEST = 1024
_PID = slice(0, 8)

_mine: NDArray[np.uint8] | None = None


def new_board(workers: int) -> Tensor:
    """One line a worker, in memory that they share with the main process."""
    board = torch.zeros(workers, _PID.stop + _LONGEST, dtype=torch.uint8)
    board.share_memory_()
    return board


def write_on(board: Tensor, worker: int) -> None:
    """From now on this process is `worker`."""
    global _mine  # noqa: PLW0603 (a process has one reader)
    line = board[worker].numpy()
    line[_PID] = np.frombuffer(os.getpid().to_bytes(8, "little"), np.uint8)
    _mine = line[_PID.stop :]


def now_reading(name: str) -> None:
    """Called before each image. Does nothing in the main process, whose death nobody survives to report."""
    if _mine is not None:
        text = os.fsencode(name)[: _LONGEST - 1] + b"\0"
        _mine[: len(text)] = np.frombuffer(text, np.uint8)


def last_read(board: Tensor, pid: int) -> str:
    """What the worker with this process id was reading; empty if it was between two images."""
    for line in board.numpy():
        if int.from_bytes(bytes(line[_PID]), "little") == pid:
            return os.fsdecode(bytes(line[_PID.stop :]).partition(b"\0")[0])
    return ""
