"""Runs of the demo that go wrong, and runs that went wrong before."""

import dataclasses
from pathlib import Path

import pytest
from rich.console import Console
from tiny_demo import PROTOCOL, RECIPE

from flexpredict.commands import ablate_task
from flexpredict.demo import recipe
from flexpredict.demo.running import plan_runs
from flexpredict.errors import UserError
from flexpredict.studies.ablations.ablating import carry_out_runs
from flexpredict.studies.ablations.runs import StudyRun, task_of
from flexpredict.training.signals import Stop


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, StudyRun]:
    for name, value in RECIPE.items():
        monkeypatch.setitem(recipe.RECIPE, name, value)
    return {row: own[0] for row, own in plan_runs(tmp_path, 2, [3], PROTOCOL).items()}


def test_what_a_process_refuses_is_said_with_the_name_of_the_run_and_nothing_is_measured(
    runs: dict[str, StudyRun], tmp_path: Path
) -> None:
    task = task_of([runs["StoP"]], tmp_path)
    (run,) = task.runs
    broken = dataclasses.replace(task, runs=(dataclasses.replace(run, recipe={**run.recipe, "patch_size": 7}),))
    with pytest.raises(UserError, match=r"StoP-seed=3 failed.*patch"):
        carry_out_runs(Console(quiet=True), [runs["StoP"]], [broken], 1, Stop())
    assert not runs["StoP"].done


def test_a_run_that_was_killed_before_it_had_a_recipe_is_begun_again(
    runs: dict[str, StudyRun], tmp_path: Path
) -> None:
    run, untrained = runs["sin-cos"], runs["untrained"]
    (run.folder / "checkpoints").mkdir(parents=True)
    (run.folder / ".config.yaml.1234.tmp").touch()
    assert ablate_task.carry_out(task_of([run, untrained], tmp_path)) == 0
    assert run.done and untrained.done and (run.folder / "report.html").is_file()
    assert run.logged_step() == run.steps == 2
    # Before training, both are the same encoder.
    assert run.numbers() != untrained.numbers()
