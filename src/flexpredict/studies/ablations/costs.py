"""How long a study takes, estimated from its finished runs and from a few trial steps of the others."""

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from flexpredict.files import write_json_atomically
from flexpredict.progress import duration
from flexpredict.runs.metrics import read_records
from flexpredict.studies.ablations.processes import Task, TaskRun, carry_out
from flexpredict.studies.ablations.runs import StudyRun, hardware
from flexpredict.training.plan import Plan, plain_values
from flexpredict.training.signals import Stop

_TRIED_STEPS = 12
_KEPT = "costs.json"


@dataclass(frozen=True)
class Costs:
    """Seconds that a run takes on this machine."""

    step: float  # each step
    other: float  # all else: starting, opening the data, checkpoints, measuring

    def of(self, steps: int) -> float:
        return self.other + steps * self.step

    def save(self, folder: Path) -> None:
        write_json_atomically(folder / _KEPT, dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Costs | None":
        path = folder / _KEPT
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def seconds_a_step(metrics: Path, batch_size: int) -> float:
    """Median seconds of a step in the log of a run, without its slower first half."""
    rates = [record["images_per_second"] for record in read_records(metrics) if "images_per_second" in record]
    return batch_size / float(median(rates[len(rates) // 2 :]))


def find_costs(runs: Sequence[StudyRun], task: Task, stop: Stop) -> dict[str, Costs] | None:
    """Costs of each arm; None if stopped.

    An arm with a finished run of any seed costs what that run did. The others are tried out in one process, in a
    temporary folder, and the first of them is measured too. task: a template for this process.
    """
    arms = {run.arm: run for run in runs}
    known: dict[str, Costs] = {}
    for arm, run in arms.items():
        for folder in run.folder.parent.glob(f"{arm}-seed=*"):
            if (costs := Costs.load(folder)) is not None:
                known[arm] = costs
    unknown = [run for arm, run in arms.items() if arm not in known]
    if unknown:
        several = hardware(unknown[0].recipe)[1] > 1  # devices: their processes can only be started once
        tried = _try_out(unknown[:1] if several else unknown, task, stop)
        if tried is None:
            return None
        known |= tried
    usual = Costs(median(one.step for one in known.values()), median(one.other for one in known.values()))
    return {arm: known.get(arm, usual) for arm in arms}


def in_words(pending: Sequence[StudyRun], costs: dict[str, Costs], at_a_time: int) -> str:
    """How long the runs will take, and why."""
    used = [costs[run.arm] for run in pending]
    fast, slow = (f"{1000 * end(cost.step for cost in used):.0f}" for end in (min, max))
    seconds = sum(cost.of(run.steps_left) for run, cost in zip(pending, used, strict=True))
    together = f"{at_a_time} at a time" if at_a_time > 1 else "one after another"
    steps = sum(run.steps_left for run in pending)
    other = duration(sum(cost.other for cost in used) / len(used))
    return (
        f"{steps:,} steps of {fast if fast == slow else f'{fast} to {slow}'} ms, and {other} a run to start and to "
        f"measure: about {duration(seconds / at_a_time)}, {together}."
    )


def _try_out(runs: list[StudyRun], task: Task, stop: Stop) -> dict[str, Costs] | None:
    scratch = Path(tempfile.mkdtemp(prefix="flexpredict-"))
    try:
        folders = {run.arm: scratch / str(number) for number, run in enumerate(runs)}
        short = [TaskRun(str(folders[run.arm]), _short(run.plan), measured=run is runs[0]) for run in runs]
        tried = dataclasses.replace(task, log=scratch / "log", runs=tuple(short))
        if not all(finished for _, finished in carry_out([tried], 1, stop)) or stop.requested:
            return None
        found = {arm: Costs.load(folder) for arm, folder in folders.items()}
        return {arm: costs for arm, costs in found.items() if costs is not None}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _short(plan: Plan) -> dict[str, object]:
    """A few steps of a plan, as plain values."""
    few = dataclasses.replace(
        plan.recipe,
        epochs=_TRIED_STEPS * plan.recipe.batch_size / plan.samples,
        optimizer=dataclasses.replace(plan.recipe.optimizer, warmup_epochs=0.0, hold_from_epoch=None),
        checkpoint_every=1_000_000,
        keep_every=None,
        log_every=1,
        probe_every=None,
        loggers=[],
    )
    return dict(plain_values(dataclasses.asdict(few)))
