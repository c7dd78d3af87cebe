"""What `pretrain` returns: the run that it made."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from flexpredict.encoders.frozen import FrozenEncoder


@dataclass(frozen=True)
class Run:
    """A run of pre-training, finished or interrupted.

    Args:
        path: its folder.
        steps: how many steps it has made.
        finished: whether these are all; if not, `pretrain(out=path, resume=True)` continues it.
    """

    path: Path
    steps: int
    finished: bool

    @property
    def report(self) -> Path:
        """The HTML page that shows the run."""
        return self.path / "report.html"

    def load(self) -> "FrozenEncoder":
        """The encoder, as `flexpredict.load` opens it."""
        from flexpredict.encoders.frozen import open_encoder

        return open_encoder(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """The records that were logged, one for every `log_every` steps: step, epoch, loss, lr and so on."""
        from flexpredict.runs.metrics import read_records
        from flexpredict.runs.run_folder import RunFolder

        return read_records(RunFolder(self.path).metrics)

    def table(self) -> Table:
        """The last record of each metric."""
        table = Table("metric", "last value")
        for name, value in self.to_dict()["metrics"].items():
            table.add_row(name, f"{value:.6g}")
        return table

    def to_dict(self) -> dict[str, Any]:
        last: dict[str, Any] = {}
        for record in self.metrics():
            last |= record
        return {"path": str(self.path), "steps": self.steps, "finished": self.finished, "metrics": last}
