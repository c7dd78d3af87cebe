"""Several contexts per image: accuracy for the same minutes of training, on the built-in scenes.

One pass of the target encoder serves all contexts of an image, so each additional context costs less than the first.
Each arm gets as many steps as fit into the time, measured beforehand, and its schedules span these steps.
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from machine import announce_machine
from rich.console import Console
from rich.table import Table

from flexpredict.data.sources.opening import open_source
from flexpredict.demo.recipe import PROTOCOL, RECIPE, recipe_values
from flexpredict.demo.table import MEASURES
from flexpredict.encoders.opening import open_encoder
from flexpredict.pretraining import run
from flexpredict.studies.ablations.measuring import Measuring, measure
from flexpredict.training.recipe_parser import make_recipe

TRIAL_STEPS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="training time of each arm")
    parser.add_argument("--contexts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console, quiet = announce_machine(), Console(quiet=True)
    train, test = open_source(PROTOCOL.train_data), open_source(PROTOCOL.test_data)
    how = Measuring(subsets=PROTOCOL.label_subsets, images=PROTOCOL.location_images)
    fabric = Fabric(accelerator="cpu", devices=1)

    table = Table(title=f"Contexts per image, {options.minutes:g} minute(s) of training each, seed {options.seed}")
    for title in ("contexts", "steps", "images/s", "time per context", *MEASURES.values()):
        table.add_column(title, justify="right")
    first = None
    with tempfile.TemporaryDirectory() as scratch:
        for contexts in options.contexts:

            def timed(steps: int, name: str, contexts: int = contexts) -> float:
                started = time.perf_counter()
                run(
                    _recipe(contexts, steps, options.seed),
                    Path(scratch) / name,
                    console=quiet,
                    source=train,
                )
                return time.perf_counter() - started

            # The difference of two trials excludes one-time work.
            once, more = timed(TRIAL_STEPS // 2, f"{contexts}-a"), timed(TRIAL_STEPS * 3 // 2, f"{contexts}-b")
            per_step = (more - once) / TRIAL_STEPS
            steps = round(60 * options.minutes / per_step)
            timed(steps, str(contexts))
            folder = Path(scratch) / str(contexts)
            numbers = measure(open_encoder(folder), folder, train, test, how, fabric)
            first = first or per_step / contexts
            table.add_row(
                str(contexts),
                f"{steps:,}",
                f"{RECIPE['batch_size'] / per_step:,.0f}",
                f"{per_step / contexts / first:.2f}",
                *(f"{numbers[name]:.1f}" for name in MEASURES),
            )
    console.print(table)


def _recipe(contexts: int, steps: int, seed: int) -> Any:
    recipe = make_recipe(recipe_values("StoP", steps, seed))
    return dataclasses.replace(recipe, masking=dataclasses.replace(recipe.masking, contexts_per_image=contexts))


if __name__ == "__main__":
    main()
