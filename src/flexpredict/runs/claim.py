"""The right to write to a folder of runs: one process at a time, nothing deleted, no trace of a start that failed.

The file `.flexpredict` marks a folder as a run and is locked while a process writes to it; a study or demo has a
`.lock` of the same kind. The operating system holds the lock for one process and releases it however that ends;
forked processes do not share it.
"""

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flexpredict.errors import UserError
from flexpredict.runs.run_folder import RunFolder, free_name

_held: set[Path] = set()  # files that this process has locked; the system would grant it a second lock
_NOT_WRITABLE = "The folder out={} cannot be made or written to: {}. Name another one."


class Claim:
    """The right of one process to write to a run folder.

    resume: continue the run that is there; overwrite: move it aside.
    """

    def __init__(self, folder: RunFolder, *, resume: bool = False, overwrite: bool = False) -> None:
        self.folder, self._resume, self._overwrite = folder, resume, overwrite
        self.aside: Path | None = None  # where the earlier run in the folder was moved to
        self._ours = False  # whether everything in the folder was made under this claim
        self._lock: Lock | None = None

    def take(self) -> None:
        """Lock the folder; make it if it does not exist. Nothing in it is touched."""
        if not self._resume:
            self.folder.refuse_used(self._overwrite)
        elif not self.folder.path.is_dir():
            self.folder.load_config()  # raises, because there is no run
        self._make()
        try:
            if not self._resume:
                self.folder.refuse_used(self._overwrite)  # again, because another process may have been quicker
        except UserError:
            self.release()
            raise

    def begin(self) -> None:
        """Make room for a new run: an older one is moved to a folder beside it."""
        path = self.folder.path
        if self.folder.holds_something():
            aside = free_name(path, ".", 1)
            path.rename(aside)
            self.release()
            self.aside = aside
            self._make()
        self._ours = True
        self.folder.clear()
        self.folder.checkpoints.mkdir(exist_ok=True)

    def give_up(self) -> None:
        """If a new run has left no results yet, restore everything as it was before."""
        if self._ours and not self.folder.has_begun():
            shutil.rmtree(self.folder.path, ignore_errors=True)
            if self.aside is not None:
                self.aside.rename(self.folder.path)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _make(self) -> None:
        path = self.folder.path
        try:
            self._ours = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_NOT_WRITABLE.format(path, error.strerror)) from error
        self._lock = Lock(self.folder.mark)


class Lock:
    """One process at a time writes to the folder of this file; raises `UserError` if another one does."""

    def __init__(self, mark: Path) -> None:
        self._key = mark.resolve()
        if self._key in _held:
            raise UserError(f"This process is already writing to {mark.parent}. Wait until that has ended.")
        try:
            self._file = os.open(mark, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(_NOT_WRITABLE.format(mark.parent, error.strerror)) from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise UserError(
                f"{mark.parent} is being written to by another process{_holder(mark)}. Wait until it has ended, or "
                "choose another `out`."
            ) from error
        _held.add(self._key)
        os.ftruncate(self._file, 0)
        os.write(self._file, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)  # which also unlocks
        _held.discard(self._key)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """While it lasts, no other process writes to this folder of several runs, which is made if missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(_NOT_WRITABLE.format(folder, error.strerror)) from error
    with closing(Lock(folder / ".lock")):
        yield


def _holder(mark: Path) -> str:
    try:
        holder = json.loads(mark.read_bytes())
        return f" (process {holder['process']} on {holder['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
