"""The command line: parses, calls, prints."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flexpredict import __version__
from flexpredict.errors import UserError, did_you_mean

_HELP = """\
flexpredict {version}: pre-train vision transformers on unlabelled images, with stochastic positions (StoP).

usage: flexpredict COMMAND [OPTIONS]

commands:
  pretrain   pre-train an encoder            flexpredict pretrain --data FOLDER --out runs/mine
  demo       see it work in six minutes      flexpredict demo
  report     write the HTML page of a run    flexpredict report runs/mine

`flexpredict COMMAND --help` explains a command and all its options.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 for bad input (said in one paragraph), 130 if interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_HELP.format(version=__version__), end="")
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    # Before torch is imported: its large blocks then live in huge pages, worth up to a tenth of a step on a CPU.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    commands = {"pretrain": _pretrain, "demo": _demo, "report": _report}
    name, rest = arguments[0], [_with_underscores(argument) for argument in arguments[1:]]
    try:
        if name not in commands:
            near, known = did_you_mean(name, commands), ", ".join(commands)
            raise UserError(f"There is no command '{name}'.{near} The commands are: {known}.")
        return commands[name](rest)
    except UserError as error:
        print(f"flexpredict: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("flexpredict: interrupted", file=sys.stderr)
        return 130


def _pretrain(arguments: list[str]) -> int:
    from jsonargparse import ArgumentParser

    from flexpredict.pretraining import run
    from flexpredict.training.recipe_parser import add_recipe, friendly_errors, instantiate
    from flexpredict.training.run_folder import RunFolder

    parser = ArgumentParser(
        prog="flexpredict pretrain",
        usage="flexpredict pretrain --data FOLDER --out RUN [OPTIONS]",
        description="Pre-train an encoder on unlabelled images. Only --data is needed; everything else has a default "
        "that fits the images and the hardware, and is printed before the run starts.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, default=Path("runs/pretrain"), help="the run folder to make")
    parser.add_argument("--resume", action="store_true", help="continue the interrupted run in --out")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    add_recipe(parser)
    with friendly_errors():
        namespace = parser.parse_args(arguments)
        if namespace.resume:
            # The run's own recipe is what all options default to; those given must then agree with it.
            config = RunFolder(namespace.out).config
            RunFolder(namespace.out).load_config()
            namespace = parser.parse_args([f"--config={config}", *arguments])
        recipe = instantiate(parser, namespace)
    outcome = run(recipe, namespace.out, resume=namespace.resume, overwrite=namespace.overwrite)
    return 0 if outcome.finished else 130


def _demo(arguments: list[str]) -> int:
    from argparse import ArgumentParser

    from flexpredict.demo import run_demo

    parser = ArgumentParser(
        prog="flexpredict demo",
        description="Pre-train with sin-cos and with stochastic positions on the built-in scenes and compare both "
        "with an untrained encoder. Offline; about six minutes on two CPU cores.",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where to put the runs and results.json")
    parser.add_argument("--steps", type=int, default=None, help="optimiser steps of each run (fewer: a quick look)")
    parser.add_argument("--seed", type=int, default=0, help="weights, order, crops, masks and noise follow from it")
    options = parser.parse_args(arguments)
    run_demo(options.out, steps=options.steps, seed=options.seed)
    return 0


def _report(arguments: list[str]) -> int:
    from argparse import ArgumentParser

    from flexpredict.report import write_report

    parser = ArgumentParser(prog="flexpredict report", description="Write the HTML page of a run.")
    parser.add_argument("run", type=Path, help="a run folder")
    print(write_report(parser.parse_args(arguments).run))
    return 0


def _with_underscores(argument: str) -> str:
    """--image-size and --image_size are the same option."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


if __name__ == "__main__":
    sys.exit(main())
