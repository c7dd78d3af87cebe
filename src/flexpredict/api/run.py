"""What `pretrain` returns: the run that it made."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.showing import SimpleResult

if TYPE_CHECKING:
    from flexpredict.encoders.image_encoder import ImageEncoder

_SHOWN = {"epoch": "epochs", "loss": "loss", "knn_accuracy": "k-NN accuracy"}


@dataclass(frozen=True)
class Run(SimpleResult):
    """A run of pre-training.

    Args:
        path: its folder.
        steps: steps that it has made.
        finished: whether these are all; if not, `pretrain(out=path, resume=True)` continues it.
    """

    path: Path
    steps: int
    finished: bool

    def load(self) -> "ImageEncoder":
        """The encoder of this run, as `flexpredict.load` opens it."""
        from flexpredict.encoders.opening import open_encoder

        return open_encoder(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """All records of metrics.jsonl: step, epoch, loss, lr and so on."""
        return read_records(RunFolder(self.path).metrics)

    @property
    def report(self) -> Path:
        """The HTML page of this run."""
        return self.path / "report.html"

    @property
    def files(self) -> list[Path]:
        folder = RunFolder(self.path)
        return [path for path in (folder.encoder, folder.best_encoder, self.report) if path.is_file()]

    def tables(self) -> list[tuple[str, Table | None]]:
        return [("", self.table())]

    def table(self) -> Table:
        """How far it came, and the last values of what matters most."""
        last = self.to_dict()["metrics"]
        shown = {title: f"{last[name]:.4g}" for name, title in _SHOWN.items() if name in last}
        table = Table("steps", *shown)
        table.add_row(f"{self.steps:,}", *shown.values())
        return table

    def to_dict(self) -> dict[str, Any]:
        """With the last value of each metric."""
        last: dict[str, Any] = {}
        for record in self.metrics():
            last |= record
        return {"path": str(self.path), "steps": self.steps, "finished": self.finished, "metrics": last}
