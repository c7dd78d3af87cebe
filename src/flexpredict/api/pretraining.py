"""`pretrain`, and the run that it returns."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.run import RunSettings, split_values
from flexpredict.showing import SimpleResult
from flexpredict.training.recipe_parser import checked_values, choose_length, make_recipe, merge

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

    def __fspath__(self) -> str:
        """A run may be given wherever its folder may."""
        return str(self.path)

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


@takes_some_fields_of(RunSettings)
def pretrain(given: dict[str, Any]) -> Run:
    """Pre-train an encoder on unlabeled images, by I-JEPA with stochastic positions, or by MAE or data2vec.

    Only the data is needed: everything else has a default that fits the images and the hardware, and is printed
    before the run starts.
    """
    values, others = split_values(RunSettings, given)
    if values.get("data") is None:  # left out by name: a resumed run has its own
        values.pop("data", None)
    asked = RunSettings(**others)
    folder = RunFolder(Path(asked.out))
    saved = checked_values(folder.load_config(), folder.config) if asked.resume else {}
    recipe = choose_length(make_recipe(merge(saved, values), asked.config), given=values)
    # What can be refused without torch and the images is refused before they are loaded.
    check_ranges(recipe)
    if not asked.resume:
        folder.refuse_used(asked.overwrite)

    from flexpredict.pretraining import run

    outcome = run(recipe, folder.path, resume=asked.resume, overwrite=asked.overwrite)
    return Run(folder.path, outcome.steps, outcome.finished)
