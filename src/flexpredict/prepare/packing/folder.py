"""The folder that shards are packed into: empty, begun or finished. Any other folder is refused."""

import json
from pathlib import Path
from typing import Any

from flexpredict.data.sources.manifest import PACKING_SETTINGS, Manifest
from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically
from flexpredict.prepare.packing.shard_writing import ShardRecord
from flexpredict.same_settings import read_settings, require_same_settings


class PackingFolder:
    """Where the shards go, and what an interrupted run has left there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / PACKING_SETTINGS

    def shard(self, number: int) -> Path:
        return self.path / f"shard-{number:06d}.tar"

    def require_ours(self) -> None:
        """Refuse a file, and a folder that holds anything but packed shards."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"out={self.path} is a file. Name a folder for the shards that does not exist yet.")
        if not self.path.is_dir() or self.settings.is_file() or Manifest.load(self.path) is not None:
            return
        # A run that was killed early may have left the settings under their temporary name.
        others = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(f".{PACKING_SETTINGS}.")]
        if others:
            raise UserError(
                f"out={self.path} is not empty ({min(others)} is there) and was not begun by `flexpredict pack`."
                " Name a folder that is empty or does not exist yet."
            )

    def finished(self, settings: dict[str, Any]) -> Manifest | None:
        """The manifest, if everything is packed. Refuses other settings than those of the manifest."""
        manifest = Manifest.load(self.path)
        if manifest is not None:
            remedy = "Use it as it is, or name another folder for these settings."
            require_same_settings(self.path, manifest.settings, settings, remedy)
            self._tidy()
        return manifest

    def begin(self, settings: dict[str, Any]) -> None:
        """Record the settings; or make sure that the shards that are there were made with the same."""
        if not self.settings.is_file():
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"Cannot make the folder out={self.path}: {error.strerror}. Name another.") from error
            write_text_atomically(self.settings, json.dumps(settings, indent=1) + "\n")
            return
        again = f"delete {self.path} to begin again."
        before = read_settings(self.settings, f"Pack into another folder, or {again}")
        remedy = f"Use the same settings again, pack into another folder, or {again}"
        require_same_settings(self.path, before, settings, remedy)

    def finished_shards(self) -> dict[int, ShardRecord]:
        """By number. Those whose length is not the recorded one are to be made again."""
        numbers = sorted(int(path.stem.removeprefix("shard-")) for path in self.path.glob("shard-[0-9]*.json"))
        records = ((number, ShardRecord.load(self.shard(number))) for number in numbers)
        return {number: record for number, record in records if record is not None}

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which replaces the records of the shards."""
        manifest.save(self.path)
        self._tidy()

    def _tidy(self) -> None:
        for pattern in ("shard-*.json", ".*.tmp", PACKING_SETTINGS):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
