"""Runs of studies in the process of the test."""

from pathlib import Path

import pytest

from flexpredict.commands import ablate_task
from flexpredict.studies.ablations import ablating, processes
from flexpredict.studies.ablations.costs import Costs
from flexpredict.studies.ablations.processes import Task


class Finished:
    """A process that is over before anyone asks."""

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code

    def terminate(self) -> None: ...

    def wait(self) -> int:
        return self.code


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Runs in this process, and without trying out how long they take; the names of those begun."""
    begun: list[str] = []
    monkeypatch.setenv("FLEXPREDICT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(processes, "_SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(
        ablating, "find_costs", lambda runs, task, stop: {run.arm: Costs(step=0.1, other=2.0) for run in runs}
    )

    def begin(task: Task, slot: int, at_a_time: int) -> Finished:
        begun.append(Path(task.runs[0][0]).name)
        return Finished(ablate_task.carry_out(Task.load(task.save())))

    monkeypatch.setattr(processes, "begin", begin)
    return begun
