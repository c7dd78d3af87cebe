"""Atomic writing: files are written under a temporary name, flushed to disk, then renamed."""

import csv
import errno
import hashlib
import io
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _whole_or_nothing(path, temporary):
        mode = _usual_mode(temporary)
        write(temporary)
        temporary.chmod(mode)
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)


def write_text_atomically(path: Path, text: str) -> None:
    """Write text, and create the folder of the file if it does not exist."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda temporary: _write_text(temporary, text))


def write_lines_atomically(path: Path, lines: Iterable[str]) -> None:
    """Write lines one after the other, so that they need not fit into memory."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    write_atomically(path, write)


def write_json_atomically(path: Path, value: Any) -> None:
    """Write a value as JSON; types that JSON does not have become text."""
    write_text_atomically(path, json.dumps(value, indent=2, default=str) + "\n")


def write_folder_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder beside `path`, then put it in place, also of an older folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    with _whole_or_nothing(path, temporary):
        temporary.mkdir(parents=True)
        mode = _usual_mode(temporary / ".mode")
        write(temporary)
        for file in temporary.iterdir():
            if file.is_file():
                file.chmod(mode)
            _flush(file)
        _flush(temporary)
        if path.exists():
            older = path.with_name(f".{path.name}.old.tmp")
            shutil.rmtree(older, ignore_errors=True)
            path.rename(older)  # quicker than deleting it, so that `path` is missing only for a moment
        temporary.replace(path)
        _flush(path.parent)
        shutil.rmtree(path.with_name(f".{path.name}.old.tmp"), ignore_errors=True)


def write_csv_atomically(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with a column for each name in any row, in order of appearance."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text_atomically(path, text.getvalue())


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file."""
    with explained(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def point_to(link: Path, target: Path) -> None:
    """Make `link` a symbolic link to `target`, a sibling, in one step."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.name)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)  # a copy made by tools that follow links
    temporary.replace(link)
    _flush(link.parent)


def half_written(folder: Path) -> Iterator[Path]:
    """Temporary files of this module and of safetensors that a killed process has left in the folder."""
    return chain(folder.glob(".*.tmp"), folder.glob(".tmp??????"))


def remove_half_written(folder: Path) -> None:
    for path in list(half_written(folder)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The checksum of a file of any size."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            total.update(block)
    return total.hexdigest()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say in words why a file or folder cannot be written."""
    try:
        yield
    except Exception as error:
        if _is_full_disk(error):
            raise UserError(
                f"No room left on the disk while writing {path}. What was there before is intact. "
                "Free some space (or a quota), then run the same again (pretrain: with resume=True)."
            ) from error
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise UserError(f"{path} cannot be written: {reason}. Choose another place.") from error
        raise


@contextmanager
def _whole_or_nothing(path: Path, temporary: Path) -> Iterator[None]:
    """Delete the temporary file or folder if writing fails."""
    with explained(path):
        try:
            yield
        except BaseException:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
            raise


def _is_full_disk(error: BaseException) -> bool:
    # safetensors wraps the system's error in one of its own and keeps only the text.
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)


def _usual_mode(path: Path) -> int:
    """The permissions that a new file gets at this path, which must be free.

    safetensors gives its files 0600, whatever the umask; there is no way to ask for the umask without changing it.
    """
    path.unlink(missing_ok=True)
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
