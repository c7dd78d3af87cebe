"""One run of a study, in a process of its own that `flexpredict ablate` starts with a file that says what to do."""

import os
import sys
import time
from pathlib import Path

import torch.distributed
from lightning_fabric import Fabric

from flexpredict import pretraining
from flexpredict.cores import prepare_threads
from flexpredict.data.sources.opening import open_source
from flexpredict.runs.run_folder import RunFolder
from flexpredict.studies.ablations.costs import Costs, seconds_a_step
from flexpredict.studies.ablations.measuring import Measuring, measure
from flexpredict.studies.ablations.processes import INTERRUPTED, Task, end_with_parent
from flexpredict.studies.ablations.runs import steps_done
from flexpredict.training.recipe_parser import make_recipe


def run(path: Path) -> int:
    end_with_parent()
    task = Task.load(path)
    os.nice(task.nice)
    return carry_out(task)


def carry_out(task: Task) -> int:
    """Train each run and measure the first; what is done already is not done again."""
    source = open_source(task.data)
    starting, measuring = time.time() - task.begun, 0.0
    for number, (folder, values) in enumerate(task.runs):
        begun, recipe, out = time.time(), make_recipe(values), RunFolder(Path(folder))
        first_step = steps_done(out.path)
        outcome = pretraining.run(recipe, out.path, resume=out.config.is_file(), source=source)
        if not outcome.finished:
            return INTERRUPTED
        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            continue
        training = time.time() - begun
        if task.test is not None and number == 0:
            how = Measuring(**{**task.measuring, "labels": tuple(task.measuring["labels"])})
            fabric = Fabric(accelerator=recipe.accelerator, devices=1)
            measure(out.path, source, open_source(task.test), how, fabric)
            measuring = time.time() - begun - training
        if outcome.steps > first_step:
            assert recipe.batch_size
            step = seconds_a_step(out.metrics, recipe.batch_size)
            other = starting + measuring + training - step * (outcome.steps - first_step)
            Costs(step, max(0.0, other)).save(out.path)
    return 0


if __name__ == "__main__":
    prepare_threads()
    sys.exit(run(Path(sys.argv[1])))
