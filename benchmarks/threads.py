"""Cost of threads that wait for each other, on an idle machine and beside processes that use the cores.

    python benchmarks/threads.py                 # an idle machine: does a setting cost anything?
    python benchmarks/threads.py --busy 2        # beside two processes that always compute

Torch's threads meet at the end of every operation, and the first ones wait by spinning. If another process occupies
the core of the last one, this time is wasted. Each setting of the environment has its own process that takes
pre-training steps; all take turns, and their images/s are compared round by round with those of the first.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
from machine import announce_machine, spread
from rich.table import Table
from step import QUICK, SETTINGS, Ours, Setting, build_model, random_images

# For GNU's OpenMP, which torch's wheels for Linux include. (LLVM's and Intel's read KMP_BLOCKTIME instead.)
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "as torch comes": {},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spin 1,000": {"GOMP_SPINCOUNT": "1000"},
    "spin 10,000": {"GOMP_SPINCOUNT": "10000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
_VARIED = {variable for environment in ENVIRONMENTS.values() for variable in environment}
# The demo's encoder on images of 32 pixels: short operations, so threads meet often.
SMALL = Setting(
    "96 wide, 4 deep, 32 px",
    "vit_tiny_patch16_224",
    32,
    4,
    64,
    (48, 2, 3),
    0,
    {"embed_dim": 96, "depth": 4, "num_heads": 3},
)
MODELS = {"small": SMALL, "quick": QUICK, **SETTINGS}


def main() -> None:
    arguments = parse_arguments()
    if arguments.contender:
        take_steps(MODELS[arguments.model], arguments.seconds)
        return
    console = announce_machine()
    setting = MODELS[arguments.model]
    console.print(f"{setting.title}, batch {setting.batch}; {arguments.busy} other process(es) that always compute")
    speeds: dict[str, list[float]] = {name: [] for name in arguments.environments}
    with contextlib.ExitStack() as stack:
        contenders = {
            name: stack.enter_context(contender(arguments.model, arguments.seconds, ENVIRONMENTS[name]))
            for name in speeds
        }
        stack.enter_context(busy(arguments.busy))
        names = list(speeds)
        for number in range(arguments.rounds):
            first = number % len(names)  # so that none always follows the same one
            for name in names[first:] + names[:first]:
                speeds[name].append(its_turn(contenders[name]))
    console.print(table_of(speeds))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one turn")
    parser.add_argument("--busy", type=int, default=0, help="other processes that use a core each")
    parser.add_argument("--contender", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def take_steps(setting: Setting, seconds: float) -> None:
    """For every line on stdin, take steps for some seconds and print their speed; runs in a process of its own."""
    ours = Ours(build_model(setting, "stochastic"), random_images(setting))
    ours(0)
    print(json.dumps(torch.get_num_threads()), flush=True)
    for _ in sys.stdin:
        steps, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            ours(steps)
            steps += 1
        print(json.dumps(steps * setting.batch / passed), flush=True)


@contextlib.contextmanager
def contender(model: str, seconds: float, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, __file__, "--contender", "--model", model, "--seconds", str(seconds)]
    usual = {name: value for name, value in os.environ.items() if name not in _VARIED}
    with subprocess.Popen(
        command, env={**usual, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        answer(process)  # waits for its first step
        yield process
        assert process.stdin
        process.stdin.close()


def its_turn(process: "subprocess.Popen[str]") -> float:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    return answer(process)


def answer(process: "subprocess.Popen[str]") -> float:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise SystemExit("A contender has failed; see its output above.")
    return float(json.loads(line))


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    processes = [multiprocessing.get_context("spawn").Process(target=_never_rest, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()


def _never_rest() -> None:
    while True:
        pass


def table_of(speeds: dict[str, list[float]]) -> Table:
    first = next(iter(speeds))
    table = Table(caption="medians (and quartiles) of rounds")
    for heading in ("environment", "images/s", f"speed, {first} = 1"):
        table.add_column(heading, justify="left" if heading == "environment" else "right")
    for name, measured in speeds.items():
        here = spread(measured)
        relative = spread([ours / theirs for ours, theirs in zip(measured, speeds[first], strict=True)])
        variables = " ".join(f"{key}={value}" for key, value in ENVIRONMENTS[name].items())
        table.add_row(
            f"{name}  {variables}".strip(),
            f"{here.median:.0f} ({here.low:.0f}–{here.high:.0f})",
            f"{relative.median:.2f} ({relative.low:.2f}–{relative.high:.2f})",
        )
    return table


if __name__ == "__main__":
    main()
