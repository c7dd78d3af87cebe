"""A demo small enough for a test, as a command: python tiny_demo.py OPTIONS."""

import functools
import sys

from flexpredict import cli
from flexpredict.commands import demo as command
from flexpredict.demo import recipe
from flexpredict.demo.running import run_demo

PROTOCOL = recipe.Protocol(train=400, test=100, size=32, label_subsets=1, shifted=40, pixels=8)
RECIPE = {
    "model_options": {"embed_dim": 24, "depth": 2, "num_heads": 2},
    "predictor": {"dim": 16, "depth": 2, "heads": 2},
    "patch_size": 8,
    "batch_size": 8,
    "log_every": 1,
}

if __name__ == "__main__":
    recipe.RECIPE.update(RECIPE)
    command.run_demo = functools.partial(run_demo, protocol=PROTOCOL)  # type: ignore[assignment]
    sys.exit(cli.main(["demo", *sys.argv[1:]]))
