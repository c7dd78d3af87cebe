"""`flexpredict demo`."""

import sys
from pathlib import Path

from flexpredict.commands import command_parser
from flexpredict.demo import SEEDS, STEPS, run_demo
from flexpredict.errors import UserError
from flexpredict.interruption import exit_code


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "demo",
        "",
        "Pre-train with sin-cos and with stochastic positions (StoP) on the built-in scenes, and compare both with "
        "an untrained encoder and with raw pixels. Offline; about six minutes on two CPU cores. If it is "
        "interrupted, the same command goes on.",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where to put the runs and results.json")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each run ({STEPS}; fewer: a quick look)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each arm ({SEEDS})")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; weights, order and masks follow")
    parser.add_argument("--overwrite", action="store_true", help="start over (the earlier demo is moved to OUT.1)")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}; use at least 1.")
    seeds = range(options.seed, options.seed + options.seeds)
    try:
        run_demo(options.out, steps=options.steps, seeds=seeds, overwrite=options.overwrite)
    except KeyboardInterrupt as interruption:
        print("\nStopped; what is done is kept. The same command goes on.", file=sys.stderr)
        return exit_code(interruption)
    return 0
