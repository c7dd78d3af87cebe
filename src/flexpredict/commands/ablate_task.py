"""A process that carries out runs of a study or of the demo; its argument is a file that describes the task."""

import shutil
import sys
import time
from pathlib import Path

import torch.distributed
from lightning_fabric import Fabric

from flexpredict import pretraining
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.demo.raw_pixels import RawPixels
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.costs import Costs, seconds_a_step
from flexpredict.studies.ablations.measuring import Measuring, measure
from flexpredict.studies.ablations.processes import INTERRUPTED, Baseline, Task, TaskRun, end_with, give_way
from flexpredict.studies.ablations.runs import plan_of, steps_done
from flexpredict.training.recipe_parser import make_recipe


def run(path: Path, parent: int) -> int:
    end_with(parent)
    task = Task.load(path)
    give_way(task.nice)
    return carry_out(task)


def carry_out(task: Task) -> int:
    """Train and measure. Finished work is not repeated, and unfinished runs are not measured."""
    begun, source = task.begun, open_source(task.data)
    test = None if task.test is None else open_source(task.test)
    for one in task.runs:
        if not _carry_out(one, task, source, test, begun):
            return INTERRUPTED
        begun = time.time()
    return 0


def _carry_out(one: TaskRun, task: Task, source: ImageSource, test: ImageSource | None, begun: float) -> bool:
    """Carry out one run. Returns whether it is finished."""
    recipe, folder = make_recipe(one.recipe), RunFolder(Path(one.folder))
    first_step = last_step = 0
    if one.baseline is None:
        first_step = steps_done(folder.path)
        if not folder.config.is_file():  # it was killed before it recorded its recipe
            shutil.rmtree(folder.path, ignore_errors=True)
        outcome = pretraining.run(recipe, folder.path, resume=folder.config.is_file(), source=source)
        if not outcome.finished:
            return False
        last_step = outcome.steps
    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        return True
    if test is not None and one.measured:
        how = Measuring.of(task.measuring)
        encoder = _untrained(one.baseline, recipe, source) if one.baseline else open_encoder(folder.path)
        measure(encoder, folder.path, source, test, how, Fabric(accelerator=recipe.accelerator, devices=1))
    if last_step > first_step:
        assert recipe.batch_size
        step = seconds_a_step(folder.metrics, recipe.batch_size)
        Costs(step, max(0.0, time.time() - begun - step * (last_step - first_step))).save(folder.path)
    return True


def _untrained(baseline: Baseline, recipe: Recipe, source: ImageSource) -> ImageEncoder:
    plan = plan_of(recipe, source)
    if baseline == "raw pixels":
        return RawPixels(plan.image_size, plan.recipe.patch_size)
    return ViTEncoder(plan.build_model().saved_encoder[0].eval(), baseline, baseline)


if __name__ == "__main__":
    try:
        sys.exit(run(Path(sys.argv[1]), int(sys.argv[2])))
    except UserError as error:
        sys.exit(str(error))
