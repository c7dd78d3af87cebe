"""Studies small enough for tests: 64 scenes of 32 pixels, one block, two steps, all in this process."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny import RECIPE

from flexpredict.commands import ablate_task
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations import ablating, processes
from flexpredict.studies.ablations.costs import Costs
from flexpredict.studies.ablations.measuring import Measuring
from flexpredict.studies.ablations.planning import Ablation
from flexpredict.studies.ablations.processes import Task
from flexpredict.training.recipe_parser import make_recipe

DATA, TEST = "scenes:64,size=32", "scenes:40,size=32,split=test"


def base(**fields: Any) -> Recipe:
    small = {"model_options": {"embed_dim": 24, "depth": 1, "num_heads": 2}, "predictor": {"dim": 16, "depth": 1}}
    return make_recipe({**RECIPE, **small, "data": DATA, "epochs": 0.25, "log_every": 1, **fields})


def asked(out: Path, study: str, **changes: Any) -> Ablation:
    usual: dict[str, Any] = {"test": TEST, "seeds": 2, "measuring": Measuring((0.5, 1.0), images=30), "jobs": 1}
    return Ablation(study, **{"base": base(), **usual, "out": out, **changes})


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


def recording() -> Console:
    return Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: PTH123 (lives as long as it)


def said(console: Console) -> str:
    return " ".join(console.export_text().split())
