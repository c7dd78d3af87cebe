"""The folder of one run: what is in it, and that no run overwrites another by accident."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Collection
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from flexpredict.errors import UserError, in_a_line
from flexpredict.files import write_text_atomically
from flexpredict.same_settings import read_settings, require_same_settings

_LIBRARIES = ("flexpredict", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")


class RunFolder:
    """Where the parts of a run lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.warnings = path / "warnings.jsonl"
        self.skipped = path / "skipped.jsonl"
        self.checkpoints = path / "checkpoints"
        self.encoder = path / "encoder.safetensors"
        self.best_encoder = path / "encoder_best.safetensors"  # by the probe
        self.environment = path / "environment.json"
        self.data = path / "data.json"

    def create(self, overwrite: bool) -> None:
        """Make the folder, or refuse to touch one that holds something."""
        self.refuse_used(overwrite)
        try:
            if self.path.is_dir() and any(self.path.iterdir()):
                shutil.rmtree(self.path)
            self.checkpoints.mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"The folder out={self.path} cannot be made: {error.strerror}. Name another one."
            ) from error

    def refuse_used(self, overwrite: bool) -> None:
        """Refuse a folder that holds something, unless it is a run to be replaced."""
        if self.path.is_file():
            raise UserError(f"out={self.path} is a file. Name a folder that does not exist yet.")
        if not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if not self.config.is_file():
            raise UserError(
                f"{self.path} is not empty and not a run folder: it has no config.yaml. Choose another `out`, for "
                f"example {self._free_name()}."
            )
        if not overwrite:
            raise UserError(
                f"{self.path} already holds a run. Continue it with resume=True, replace it with overwrite=True, or "
                f"choose another `out`, for example {self._free_name()}."
            )

    @property
    def rehearsal(self) -> Path:
        """Beside this folder, and so on the same disk: where steps are measured before the run starts."""
        path = self.path.resolve()
        return path.with_name(f".{path.name}.rehearsal")

    def save_config(self, config: dict[str, Any]) -> None:
        write_text_atomically(self.config, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    def load_config(self) -> dict[str, Any]:
        if not self.config.is_file():
            raise UserError(
                f"There is no run to resume in {self.path} (no config.yaml). Start it without `resume`, "
                "or name the right folder as `out`."
            )
        try:
            loaded = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{self.config} cannot be read: {in_a_line(error)} Restore it from a copy.") from error
        if not isinstance(loaded, dict):
            raise UserError(f"{self.config} is damaged: it holds {type(loaded).__name__}, not a mapping.")
        return loaded

    def refuse_changes(
        self, config: dict[str, Any], free: Collection[str], saved: dict[str, Any] | None = None
    ) -> None:
        """A resumed run must be the run it was; only what is `free` may differ from its config.

        saved: that config, where it had to be read in a way of its own.
        """
        remedy = (
            "Resume it without changing these settings, or start a new run in another folder (pretrain: from its "
            "weights, with init_from)."
        )
        require_same_settings(self.path, saved or self.load_config(), config, remedy, free)

    def save_data(self, identity: dict[str, Any]) -> None:
        """What the images are, so that a resumed run can be sure to have the same."""
        write_text_atomically(self.data, json.dumps(identity, indent=2) + "\n")

    def refuse_other_data(self, identity: dict[str, Any]) -> None:
        """Other images would have another order, and the run would not be the one it was."""
        remedy = "Delete it, if you are sure that the images are the same."
        saved = read_settings(self.data, remedy) if self.data.is_file() else identity
        if saved != identity:
            raise UserError(
                f"The images are not those that the run in {self.path} was made with: there were {saved['images']}, "
                f"now there are {identity['images']}"
                + (", with other names" if saved["images"] == identity["images"] else "")
                + ". Put them back as they were, or start a new run from its weights with init_from."
            )

    def save_environment(self, **facts: Any) -> None:
        """What the numbers were made with."""
        import torch  # here, so that a folder can be looked at without it

        environment = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": " ".join(sys.argv),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "versions": {name: _version(name) for name in _LIBRARIES},
            **facts,
        }
        write_text_atomically(self.environment, json.dumps(environment, indent=2) + "\n")

    def _free_name(self) -> Path:
        number = 2
        while (candidate := self.path.with_name(f"{self.path.name}-{number}")).exists():
            number += 1
        return candidate


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
