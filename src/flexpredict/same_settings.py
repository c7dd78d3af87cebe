"""Work that is continued in a folder must have the settings that it was started with."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError


def require_same_settings(
    folder: Path, recorded: Mapping[str, Any], asked: Mapping[str, Any], remedy: str, free: Collection[str] = ()
) -> None:
    """Raise an error that names every setting that differs, with both values.

    Args:
        folder: where the work was started.
        recorded: settings that it was started with, as plain values.
        asked: settings now.
        remedy: what to do, one or two sentences.
        free: names of settings that may differ.
    """
    if changes := changed_settings(recorded, asked, free):
        raise UserError(f"{folder} was started with {', '.join(changes)}. {remedy}")


def changed_settings(recorded: Mapping[str, Any], asked: Mapping[str, Any], free: Collection[str] = ()) -> list[str]:
    """Settings that differ, each as "name=RECORDED (now ASKED)"; names of nested settings have dots."""
    names = [name for name in asked if name not in free]
    return [change for name in names for change in _changes(name, recorded.get(name), asked[name])]


def read_settings(path: Path, remedy: str) -> dict[str, Any]:
    """The settings that a JSON file records. remedy: what to do if it is damaged."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged, so the settings of the earlier run are lost. {remedy}") from error


def require_own_folder(record: Path, command: str, remedy: str) -> None:
    """Refuse a file, and a folder with anything but work of this command. record: the file of its settings."""
    folder = record.parent
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. {remedy}")
    if record.is_file() or not folder.exists():
        return
    # A process that was killed early may have left the settings under their temporary name.
    others = [entry.name for entry in folder.iterdir() if not entry.name.startswith(f".{record.name}.")]
    if others:
        raise UserError(f"{folder} holds {min(others)} and was not made by `flexpredict {command}`. {remedy}")


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key, value in now.items():
            yield from _changes(f"{name}.{key}", before.get(key), value)
    elif before != now:
        yield f"{name}={before} (now {now})"
