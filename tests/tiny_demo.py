"""A demo small enough for a test, as a function and as a command: python tiny_demo.py OPTIONS."""

import functools
import signal
import sys
from unittest.mock import patch

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


def demo(*options: str) -> int:
    """`flexpredict demo OPTIONS` with this recipe and protocol, and one seed."""
    small = functools.partial(running.run_demo, protocol=PROTOCOL)
    with patch.dict(recipe.RECIPE, RECIPE), patch.object(running, "run_demo", small):
        return cli.main(["demo", "--seeds=1", *options])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # is ignored where tests run in the background
    sys.exit(demo(*sys.argv[1:]))
