"""Tasks that go wrong, and tasks that went wrong before."""

import dataclasses
from pathlib import Path

import pytest
from tiny_demo import PROTOCOL, RECIPE

from flexpredict.demo import worker
from flexpredict.demo.measuring import Scenes
from flexpredict.demo.tasks import plan_tasks
from flexpredict.demo.workers import carry_out
from flexpredict.errors import UserError


def test_what_a_process_refuses_is_said_with_the_name_of_the_task_and_nothing_is_measured(tmp_path: Path) -> None:
    (task,) = plan_tasks(tmp_path, 5, [3], PROTOCOL)[1:2]
    broken = dataclasses.replace(task, recipe={**task.recipe, **RECIPE, "patch_size": 7})
    with pytest.raises(UserError, match=r"StoP, seed 3: .*patch"):
        carry_out([broken], PROTOCOL, look=lambda: None)
    assert not broken.done


def test_a_run_that_was_killed_before_it_had_a_recipe_is_begun_again(tmp_path: Path) -> None:
    task = plan_tasks(tmp_path, 2, [0], PROTOCOL)[0]
    task = dataclasses.replace(task, recipe={**task.recipe, **RECIPE, "epochs": 2 * 8 / PROTOCOL.train})
    (task.run_folder / "checkpoints").mkdir(parents=True)
    (task.run_folder / ".config.yaml.1234.tmp").touch()
    worker.carry_out(task, Scenes.draw(PROTOCOL))
    assert task.done and (task.run_folder / "report.html").is_file()
    assert task.work_done() == task.work
