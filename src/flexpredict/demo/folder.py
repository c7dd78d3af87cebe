"""The folder of a demo: an earlier demo in it goes on if nothing has changed, else it is moved aside."""

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from flexpredict import __version__
from flexpredict.demo.recipe import ARMS, RECIPE, Protocol
from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically
from flexpredict.same_settings import changed_settings, read_settings

_SETTINGS = "demo.json"
_LIBRARIES = ("torch", "torchvision", "timm", "lightning-fabric", "numpy")
_CHANGES_SHOWN = 3


def demo_settings(steps: int, protocol: Protocol) -> dict[str, Any]:
    """All that the numbers of a seed depend on, as plain values."""
    settings = {
        "steps": steps,
        "recipe": RECIPE,
        "arms": ARMS,
        "protocol": protocol.describe(),
        "software": _software(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def open_folder(out: Path, settings: dict[str, Any], overwrite: bool, console: Console) -> None:
    """Make `out` the folder of a demo with these settings. Nothing is deleted."""
    record = out / _SETTINGS
    if out.exists() and (out.is_file() or any(out.iterdir())):
        if not record.is_file():
            raise UserError(
                f"out={out} holds something that is no demo, which is left alone. Name a folder that is empty or "
                "does not exist."
            )
        reason = "as asked" if overwrite else _reason_to_start_over(record, settings)
        if not reason:
            return
        kept = _move_aside(out)
        console.print(f"Starting over, {reason}. The earlier demo is kept in {kept}.", highlight=False, markup=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text_atomically(record, json.dumps(settings, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"out={out} cannot be written to: {error.strerror}. Name another folder.") from error


def _reason_to_start_over(record: Path, settings: dict[str, Any]) -> str:
    """Nothing if the demo was begun with the same settings."""
    recorded = read_settings(record, "Start over with overwrite=True.")
    if recorded == settings:
        return ""
    changes = changed_settings(recorded, settings) or ["settings that there are no more"]
    more = f" and {len(changes) - _CHANGES_SHOWN} more" if len(changes) > _CHANGES_SHOWN else ""
    return f"because the demo in {record.parent} was begun with {', '.join(changes[:_CHANGES_SHOWN])}{more}"


def _move_aside(folder: Path) -> Path:
    folder = folder.resolve()
    number = 1
    while (kept := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    try:
        return folder.rename(kept)
    except OSError as error:
        raise UserError(f"{folder} cannot be renamed to {kept}: {error.strerror}. Name another `out`.") from error


def _software() -> dict[str, str]:
    """Versions, and a digest of this package's code, which may change while its version stays."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    return {
        "flexpredict": __version__,
        "code": digest.hexdigest(),
        "python": platform.python_version(),
        **versions,
    }
