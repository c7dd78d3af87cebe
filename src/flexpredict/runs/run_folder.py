"""The folder of one run: its files, and a record of what it was made with."""

import os
import platform
import shlex
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from flexpredict.errors import UserError, in_a_line
from flexpredict.files import (
    append_line,
    half_written,
    remove_half_written,
    write_json_atomically,
    write_text_atomically,
)
from flexpredict.runs.metrics import read_records
from flexpredict.same_settings import read_settings, require_same_settings

_LIBRARIES = ("flexpredict", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")


class RunFolder:
    """The paths of a run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mark = path / ".flexpredict"  # marks this as a run; see claim.py
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.warnings = path / "warnings.jsonl"
        self.skipped = path / "skipped.jsonl"
        self.checkpoints = path / "checkpoints"
        self.encoder = path / "encoder.safetensors"
        self.best_encoder = path / "encoder_best.safetensors"  # by the probe
        self.environment = path / "environment.json"  # of the first start
        self.starts = path / "starts.jsonl"
        self.data = path / "data.json"

    def refuse_used(self, overwrite: bool) -> None:
        """Refuse a folder that holds something, unless it is a run to be replaced."""
        if self.path.is_file():
            raise UserError(f"out={self.path} is a file. Name a folder that does not exist yet.")
        if not self.holds_something():
            return
        if not self.mark.is_file():
            raise UserError(
                f"{self.path} is not empty and not a run folder: it has no {self.mark.name}. Choose another `out`, "
                f"for example {free_name(self.path, '-', 2)}."
            )
        if not overwrite:
            raise UserError(
                f"{self.path} already holds a run. Continue it with resume=True, replace it with overwrite=True, or "
                f"choose another `out`, for example {free_name(self.path, '-', 2)}."
            )

    def holds_something(self) -> bool:
        """Whether it holds more than the leftovers of a process killed before config.yaml, which comes last."""
        if not self.path.is_dir():
            return False
        started = {self.mark, self.rehearsal, self.data, self.environment, self.starts, *half_written(self.path)}
        if self.checkpoints.is_dir() and not any(self.checkpoints.iterdir()):
            started.add(self.checkpoints)
        return any(entry not in started for entry in self.path.iterdir())

    def clear(self) -> None:
        """Remove the leftovers of a killed process."""
        remove_half_written(self.path)
        remove_half_written(self.checkpoints)
        if not self.config.is_file():
            for path in (self.data, self.environment, self.starts):
                path.unlink(missing_ok=True)

    def has_begun(self) -> bool:
        """Whether training has left something: a checkpoint, a line of metrics, an unreadable image."""
        lines = (self.metrics, self.warnings, self.skipped)
        return any(self.checkpoints.glob("step-*")) or any(path.is_file() and path.stat().st_size for path in lines)

    @property
    def rehearsal(self) -> Path:
        """Where steps are measured before the run starts: on the same disk."""
        return self.path / ".rehearsal"

    def save_config(self, config: dict[str, Any]) -> None:
        write_text_atomically(self.config, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    def load_config(self) -> dict[str, Any]:
        if not self.config.is_file():
            raise UserError(
                f"There is no run to resume in {self.path} (no config.yaml). Start it without `resume`, "
                "or name the right folder as `out`."
            )
        return read_yaml(self.config, " Restore it from a copy.")

    def refuse_changes(
        self, config: dict[str, Any], free: Collection[str], saved: dict[str, Any] | None = None
    ) -> None:
        """Refuse to resume a run with other settings; only the `free` ones may differ from its config.

        saved: the config to compare with; by default config.yaml.
        """
        remedy = (
            "Resume it without changing these settings, or start a new run in another folder (pretrain: from its "
            "weights, with init_from)."
        )
        require_same_settings(self.path, saved or self.load_config(), config, remedy, free)

    def save_data(self, identity: dict[str, Any]) -> None:
        """Record which images there are, so that a resumed run can check that they are the same."""
        write_json_atomically(self.data, identity)

    def refuse_other_data(self, identity: dict[str, Any]) -> None:
        """Refuse to resume on other images: their order would differ, and so would the run."""
        remedy = "Delete it, if you are sure that the images are the same."
        saved = read_settings(self.data, remedy) if self.data.is_file() else identity
        if saved != identity:
            raise UserError(
                f"The images are not those that the run in {self.path} was made with: there were {saved['images']}, "
                f"now there are {identity['images']}"
                + (", with other names" if saved["images"] == identity["images"] else "")
                + ". Put them back as they were, or start a new run from its weights with init_from."
            )

    def record_start(self, step: int = 0, **facts: Any) -> None:
        """Record what results are made with: everything at the first start, only changes at later ones."""
        import torch  # here, so that folders can be read without it

        now = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": shlex.join(sys.argv),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "versions": versions(_LIBRARIES),
            **facts,
        }
        first = read_settings(self.environment, "Delete it.") if self.environment.is_file() else {}
        if not first:
            write_json_atomically(self.environment, now)
        new = {name: value for name, value in now.items() if name in ("date", "command") or first.get(name) != value}
        start = {"step": step, "host": platform.node(), "job": current_job(), **(new if first else {})}
        append_line(self.starts, start)

    def started_by(self, job: str | None) -> bool:
        """Whether this cluster job made the last start (None: there is no job)."""
        starts = read_records(self.starts) if job else []
        return bool(starts) and starts[-1].get("job") == job


def free_name(path: Path, separator: str, number: int) -> Path:
    """runs/mine-2, or with the next number that is free."""
    while (candidate := path.with_name(f"{path.resolve().name}{separator}{number}")).exists():
        number += 1
    return candidate


def is_run(path: Path) -> bool:
    """Whether this is the folder of a run."""
    folder = RunFolder(path)
    return path.is_dir() and (folder.encoder.exists() or folder.config.exists())


def read_yaml(path: Path, remedy: str = "") -> dict[str, Any]:
    """The settings in a YAML file. remedy: what to do if it is damaged."""
    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if PyYAML was built with it
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), parser)  # both are safe
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} is not valid YAML: {in_a_line(error)}.{remedy}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.{remedy}") from error
    if not isinstance(loaded, dict):
        raise UserError(f"{path} must hold `name: value` lines, but holds {type(loaded).__name__}.{remedy}")
    return loaded


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Versions of those libraries that are installed."""
    found = {}
    for name in libraries:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def current_job() -> str | None:
    """The name of the job that a cluster or torchrun may start again; None if this process is not part of one."""
    for kind, variable in (("slurm", "SLURM_JOB_ID"), ("torchrun", "TORCHELASTIC_RUN_ID")):
        if variable in os.environ:
            return f"{kind} {os.environ[variable]}"
    return None


def is_restarted_job() -> bool:
    """Whether a cluster (`--requeue`) or torchrun (`--max-restarts`) has started this job before."""
    counts = (os.environ.get(name, "0") for name in ("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"))
    return any(count.isdecimal() and int(count) for count in counts)
