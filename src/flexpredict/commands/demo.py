"""`flexpredict demo`."""

from pathlib import Path

from flexpredict.commands import command_parser
from flexpredict.demo import run_demo


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "demo",
        "",
        "Pre-train with sin-cos and with stochastic positions on the built-in scenes and compare both with an "
        "untrained encoder. Offline; about six minutes on two CPU cores.",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where to put the runs and results.json")
    parser.add_argument("--steps", type=int, default=None, help="optimiser steps of each run (fewer: a quick look)")
    parser.add_argument("--seed", type=int, default=0, help="weights, order, crops, masks and noise follow from it")
    options = parser.parse_args(arguments)
    run_demo(options.out, steps=options.steps, seed=options.seed)
    return 0
