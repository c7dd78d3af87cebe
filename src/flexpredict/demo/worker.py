"""A process that carries out tasks of the demo, one after another.

It is told the protocol and then the tasks, each in a line of JSON on its standard input, and answers each task with a
line. When its input ends, the demo was interrupted or is gone, and it stops: at once, or if it is training, after the
step and a checkpoint.
"""

import json
import os
import shutil
import signal
import sys
import time
from queue import SimpleQueue
from threading import Thread
from typing import TextIO

import torch
from rich.console import Console

from flexpredict.demo.measuring import RawPixels, Scenes, measure
from flexpredict.demo.recipe import Protocol
from flexpredict.demo.tasks import PIXELS, UNTRAINED, Task
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.pretraining import run
from flexpredict.training.plan import make_plan
from flexpredict.training.recipe_parser import make_recipe

_SECONDS_BETWEEN_SIGNALS = 1.0


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    orders: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()
    scenes = Scenes.draw(Protocol(**json.loads(orders.get())))
    while True:
        task = Task.from_json(orders.get())
        try:
            carry_out(task, scenes)
            answer = {"error": ""}
        except UserError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


def carry_out(task: Task, scenes: Scenes) -> None:
    """Pre-train, from the last checkpoint if there is one, and measure. Nothing unfinished is ever measured."""
    task.save(measure(_encoder(task, scenes), scenes))


def _encoder(task: Task, scenes: Scenes) -> ImageEncoder:
    recipe = make_recipe(task.recipe)
    source = scenes.train.source
    if task.row == PIXELS:
        assert recipe.patch_size is not None
        return RawPixels(scenes.protocol.size, scenes.protocol.pixels, recipe.patch_size)
    if task.row == UNTRAINED:
        plan = make_plan(recipe, source, torch.device("cpu"), world_size=1)
        return ViTEncoder(plan.build_model().saved_encoder[0].eval(), task.row, task.row)
    if not task.begun:  # what is there was killed before it had a recipe
        shutil.rmtree(task.run_folder, ignore_errors=True)
    outcome = run(recipe, task.run_folder, resume=task.begun, console=Console(quiet=True), source=source)
    if not outcome.finished:
        os._exit(128 + signal.SIGTERM)
    return open_encoder(task.run_folder)


def _listen(orders: TextIO, queue: "SimpleQueue[str]") -> None:
    for line in orders:
        queue.put(line)
    while True:  # training answers the first signal by saving and leaving; a later one ends whatever follows
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_SECONDS_BETWEEN_SIGNALS)


if __name__ == "__main__":
    main()
