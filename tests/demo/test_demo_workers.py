"""Tasks that go wrong in a process of their own."""

import dataclasses
from pathlib import Path

import pytest
from tiny_demo import PROTOCOL, RECIPE

from flexpredict.demo.tasks import plan_tasks
from flexpredict.demo.workers import carry_out
from flexpredict.errors import UserError


def test_what_a_process_refuses_is_said_with_the_name_of_the_task_and_nothing_is_measured(tmp_path: Path) -> None:
    (task,) = plan_tasks(tmp_path, 5, [3], PROTOCOL)[1:2]
    broken = dataclasses.replace(task, recipe={**task.recipe, **RECIPE, "patch_size": 7})
    with pytest.raises(UserError, match=r"StoP, seed 3: .*patch"):
        carry_out([broken], PROTOCOL, look=lambda: None)
    assert not broken.done
