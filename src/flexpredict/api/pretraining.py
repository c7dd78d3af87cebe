"""`pretrain`, and the run that it returns."""

import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flexpredict.api.planning import plan_of
from flexpredict.cores import prepare_threads
from flexpredict.errors import UserError
from flexpredict.interruption import PREEMPTED
from flexpredict.runs.metrics import PROBES, read_records
from flexpredict.runs.run_folder import RunFolder, current_job, is_restarted_job
from flexpredict.settings.effects import refuse_without_effect
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.run import PlanSettings, RunSettings, split_values
from flexpredict.showing import SimpleResult, say, show
from flexpredict.training.recipe_parser import checked_values, choose_length, make_recipe, merge

if TYPE_CHECKING:
    from flexpredict.encoders.image_encoder import ImageEncoder

_SHOWN = {
    "epoch": ("epochs", "{:.4g}"),
    "loss": ("loss", "{:.4g}"),
    **{name: (f"{judge} accuracy", "{:.1%}") for name, judge in PROBES.items()},
    "location_share": ("location share", "{:.1%}"),
}


@dataclass(frozen=True)
class Run(SimpleResult):
    """A run of pre-training.

    Args:
        path: its folder.
        steps: steps done so far.
        finished: whether all steps are done; if not, `pretrain(out=path, resume=True)` continues the run.
        dry_run: whether the run was only planned.
    """

    path: Path
    steps: int
    finished: bool
    dry_run: bool = False

    exit_code = PREEMPTED
    """Exit code of a command whose run is not finished: see docs/scale.md."""

    def __fspath__(self) -> str:
        """Accept a run wherever its folder is accepted."""
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
        return [] if self.dry_run else [("", self.table())]

    def table(self) -> Table:
        """Steps done, and the last values of the most important metrics."""
        last = self.to_dict()["metrics"]
        shown = {title: text.format(last[name]) for name, (title, text) in _SHOWN.items() if name in last}
        table = Table("steps", *shown)
        table.add_row(f"{self.steps:,}{'' if self.finished else ' (unfinished)'}", *shown.values())
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the last value of each metric."""
        last: dict[str, Any] = {}
        for record in self.metrics():
            last |= record
        return {
            "path": str(self.path),
            "steps": self.steps,
            "finished": self.finished,
            "dry_run": self.dry_run,
            "metrics": last,
        }


@takes_some_fields_of(RunSettings)
def pretrain(given: dict[str, Any]) -> Run:
    """Pre-train an encoder on unlabeled images, by I-JEPA with stochastic positions, or by MAE or data2vec.

    Only the data is needed: everything else has a default that fits the images and the hardware, and is printed
    before the run starts.

    SIGTERM and SIGUSR1 end the run after the current step: everything is saved, and `Run.finished` is false. So does
    Ctrl-C, which then raises KeyboardInterrupt, as it would anywhere else.
    """
    values, others = split_values(RunSettings, given)
    if values.get("data") is None:  # data=None: a resumed run has its own
        values.pop("data", None)
    asked = RunSettings(**others)
    folder = RunFolder(Path(asked.out))
    if asked.resume and asked.overwrite:
        raise UserError("resume=True continues the run in `out`, overwrite=True replaces it. Give one of them.")
    if folder.started_by(current_job()) and _is_restarted():
        asked = replace(asked, resume=True, overwrite=False)
    saved = checked_values(folder.load_config(), folder.config) if asked.resume else {}
    recipe = choose_length(make_recipe(merge(saved, values), asked.config), given=values)
    # Checks that need neither torch nor the images come before both are loaded.
    check_ranges(recipe)
    refuse_without_effect(recipe, values)
    if not asked.resume:
        folder.refuse_used(asked.overwrite)
    if asked.dry_run:
        # A resumed run has its own weights.
        _show_plan(replace(recipe, init_from=None) if asked.resume else recipe)
        return Run(folder.path, 0, finished=False, dry_run=True)

    prepare_threads()  # before torch is imported, if it is not yet
    from flexpredict.pretraining import run

    outcome = run(recipe, folder.path, resume=asked.resume, overwrite=asked.overwrite)
    if outcome.signal == signal.SIGINT:
        raise KeyboardInterrupt(f"pretrain stopped at step {outcome.steps}; everything is saved.")
    return Run(folder.path, outcome.steps, outcome.finished)


def _is_restarted() -> bool:
    """Whether a cluster or torchrun has started this job before."""
    from flexpredict.training.rendezvous import agents_keep_a_store, was_started_before

    return was_started_before() if agents_keep_a_store() else is_restarted_job()


def _show_plan(asked: Recipe) -> None:
    """Show what `plan` says about the run, and some of its masks."""
    from flexpredict.costs.passes import mask_grid
    from flexpredict.masking import sample_masks
    from flexpredict.masking.drawing import draw_masks
    from flexpredict.randomness import stream_key
    from flexpredict.training.time_limit import with_epochs

    planned = plan_of(replace(asked, minutes=None), PlanSettings(on=[]))
    console = Console(soft_wrap=True)
    if asked.minutes is not None:
        images = 60 * asked.minutes * planned.hardware["this machine"].images_per_second
        planned = plan_of(with_epochs(asked, images / planned.estimate.plan.samples), PlanSettings(on=[]))
        say(
            console,
            f"{asked.minutes:g} minutes allow about this length; the run measures it again before it starts.",
        )
    show(planned)
    estimate = planned.estimate
    recipe = estimate.plan.recipe
    grid = mask_grid(estimate.step_memory.model, estimate.plan.encoder.grid)
    masks = sample_masks(recipe.masking, grid, stream_key(recipe.seed, "masks", 0), recipe.batch_size)
    say(console, "\nMasks of the first images: context █, targets by their numbers, neither ·\n")
    say(console, draw_masks(masks, grid))
    say(console, "\nNothing was started. Leave dry_run out to start it.")
