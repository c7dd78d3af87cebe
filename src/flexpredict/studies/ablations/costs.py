"""How long a study takes: from runs that are done, and from a few steps of those that are not."""

import dataclasses
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.files import write_text_atomically
from flexpredict.progress import duration
from flexpredict.runs.metrics import read_records
from flexpredict.studies.ablations.processes import Task, carry_out
from flexpredict.studies.ablations.runs import ArmRun, hardware
from flexpredict.training.plan import Plan, plain_values
from flexpredict.training.signals import Stop

_TRIED_STEPS = 12
_KEPT = "costs.json"


@dataclass(frozen=True)
class Costs:
    """Seconds of a run on this machine.

    Args:
        step: each step.
        other: all the rest, once: starting, opening the data, checkpoints, measuring.
    """

    step: float
    other: float

    def of(self, steps: int) -> float:
        return self.other + steps * self.step

    def save(self, folder: Path) -> None:
        write_text_atomically(folder / _KEPT, json.dumps(dataclasses.asdict(self)) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Costs | None":
        path = folder / _KEPT
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def seconds_a_step(metrics: Path, batch_size: int) -> float:
    """The usual one, from the log of a run; its first lines, when all is new, do not count."""
    rates = [record["images_per_second"] for record in read_records(metrics)]
    return batch_size / _median(rates[len(rates) // 2 :])


def find_costs(runs: Sequence[ArmRun], task: Task, stop: Stop) -> dict[str, Costs] | None:
    """Of each arm of these runs; None if someone stopped it.

    An arm that has a finished run costs what that did. All others are tried out together in one process, in a folder
    that is thrown away; the first of them is measured too. task: what such a process must know.
    """
    known: dict[str, Costs] = {}
    for run in runs:
        if (costs := Costs.load(run.folder)) is not None:
            known.setdefault(run.arm, costs)
    unknown = list({run.arm: run for run in runs if run.arm not in known}.values())
    if unknown:
        several = hardware(unknown[0].recipe)[1] > 1  # devices, whose processes start but once
        tried = _try_out(unknown[:1] if several else unknown, task, stop)
        if tried is None:
            return None
        known |= tried
    usual = Costs(_median([one.step for one in known.values()]), _median([one.other for one in known.values()]))
    return {run.arm: known.get(run.arm, usual) for run in runs}


def in_words(pending: Sequence[ArmRun], costs: dict[str, Costs], at_a_time: int) -> str:
    """How long the runs will take, and why."""
    steps = sum(run.steps_left for run in pending)
    used = [costs[run.arm] for run in pending]
    slow, fast = max(cost.step for cost in used), min(cost.step for cost in used)
    each = f"{1000 * fast:.0f}" + (f" to {1000 * slow:.0f}" if round(1000 * slow) > round(1000 * fast) else "")
    other = sum(cost.other for cost in used)
    seconds = sum(costs[run.arm].of(run.steps_left) for run in pending)
    together = f"{at_a_time} at a time" if at_a_time > 1 else "one after another"
    return (
        f"{steps:,} steps of {each} ms, and {duration(other / len(pending))} a run to start and to measure: about "
        f"{duration(seconds / at_a_time)}, {together}."
    )


def _median(values: list[float]) -> float:
    return float(statistics.median(values))


def _try_out(runs: list[ArmRun], task: Task, stop: Stop) -> dict[str, Costs] | None:
    scratch = Path(tempfile.mkdtemp(prefix="flexpredict-"))
    try:
        short = [(str(scratch / str(number)), _short(run.plan)) for number, run in enumerate(runs)]
        tried = dataclasses.replace(task, log=scratch / "log", runs=tuple(short))
        if not all(finished for _, finished in carry_out([tried], 1, stop)) or stop.requested:
            return None
        found = {run.arm: Costs.load(scratch / str(number)) for number, run in enumerate(runs)}
        return {arm: costs for arm, costs in found.items() if costs is not None}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _short(plan: Plan) -> dict[str, Any]:
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
    values: dict[str, Any] = plain_values(dataclasses.asdict(few))
    return values
