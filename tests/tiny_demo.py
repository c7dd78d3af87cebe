"""A demo small enough for a test, as a command: python tiny_demo.py OPTIONS."""

import functools
import sys

from flexpredict import cli
from flexpredict.demo import recipe, running

PROTOCOL = recipe.Protocol(train=1200, test=100, size=32, label_subsets=1, location_images=100)
RECIPE = {
    "model_options": {"embed_dim": 24, "depth": 2, "num_heads": 2},
    "predictor": {"dim": 16, "depth": 2, "heads": 2},
    "patch_size": 8,
    "batch_size": 8,
    "log_every": 1,
}

if __name__ == "__main__":
    recipe.RECIPE.update(RECIPE)
    running.run_demo = functools.partial(running.run_demo, protocol=PROTOCOL)  # type: ignore[assignment]
    sys.exit(cli.main(["demo", *sys.argv[1:]]))
