"""The command line: parses, calls, prints."""

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from flexpredict import __version__
from flexpredict.errors import UserError, did_you_mean

_HELP = """\
flexpredict {version}: pre-train vision transformers on unlabelled images, with stochastic positions (StoP).

usage: flexpredict COMMAND [OPTIONS]

commands:
  inspect    see what is in a set of images  flexpredict inspect FOLDER
  pack       make it quicker to read, once   flexpredict pack FOLDER packed --size 256
  pretrain   pre-train an encoder            flexpredict pretrain --data FOLDER --out runs/mine
  report     write the HTML page of a run    flexpredict report runs/mine
  demo       see it work in six minutes      flexpredict demo

Images may be in a folder, in tar shards, in parquet files or on the Hugging Face hub; `scenes` are built in.

`flexpredict COMMAND --help` explains a command and all its options.
"""


_SOURCE = (
    "a folder of images, tar shards (shards-{000..127}.tar), parquet files, a folder made by save_to_disk, "
    "hf://NAME[:SPLIT], or scenes; stream: before shards, parquet files or hf:// reads them in order"
)


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
    commands = {"inspect": _inspect, "pack": _pack, "pretrain": _pretrain, "report": _report, "demo": _demo}
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


def _inspect(arguments: list[str]) -> int:
    from flexpredict.data.augmentation import PRESETS
    from flexpredict.inspection import inspect
    from flexpredict.training.recipe import parse_image_sizes

    parser = _parser(
        "inspect",
        "Say what is in a set of images: counts, sizes, formats, classes, broken files and exact duplicates; and "
        "draw a contact sheet of it, with what the model will see of it after augmentation and masking.",
    )
    parser.add_argument("source", nargs="+", help=_SOURCE)
    parser.add_argument("--out", type=Path, default=Path("inspection"), help="where to put the pictures and lists")
    parser.add_argument("--sample", type=int, default=None, help="look at so many evenly spaced images only")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--image_size", default=None, help="what the model will be given, as in pretrain")
    parser.add_argument("--patch_size", type=int, default=None, help="side of a patch, as in pretrain")
    parser.add_argument("--augmentation", choices=list(PRESETS), default="stop", help="as in pretrain")
    parser.add_argument("--seed", type=int, default=0, help="which images, crops and masks are drawn")
    options = parser.parse_args(arguments)
    inspect(
        options.source,
        options.out,
        sample=options.sample,
        workers=options.workers,
        image_size=parse_image_sizes(options.image_size)[0] if options.image_size else None,
        patch_size=options.patch_size,
        augmentation=PRESETS[options.augmentation],
        seed=options.seed,
    )
    return 0


def _pack(arguments: list[str]) -> int:
    from flexpredict.data.manifest import verify
    from flexpredict.packing import pack

    parser = _parser(
        "pack",
        "Convert images once into WebDataset shards at training resolution, which are several times quicker to read. "
        "Run it again to go on after an interruption. Then: flexpredict pretrain --data OUT",
    )
    parser.add_argument("source", nargs="*", help=_SOURCE)
    parser.add_argument("out", type=Path, help="the folder for the shards")
    parser.add_argument("--size", type=int, default=256, help="shorter side of the packed images (default: 256)")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEGs, up to 95 (default: 90)")
    parser.add_argument("--images_per_shard", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--max_skipped", type=float, default=0.05, help="largest share of unreadable images")
    parser.add_argument("--verify", action="store_true", help="only check the shards in OUT against their checksums")
    options = parser.parse_args(arguments)
    if options.verify:
        problems = verify(options.out)
        print("\n".join(problems) or f"{options.out}: all shards are as they were written.")
        return 2 if problems else 0
    if not options.source:
        raise UserError("Name the images to pack and the folder to pack them into: flexpredict pack FOLDER packed.")
    pack(
        options.source,
        options.out,
        size=options.size,
        quality=options.quality,
        images_per_shard=options.images_per_shard,
        workers=options.workers,
        max_skipped=options.max_skipped,
    )
    return 0


def _pretrain(arguments: list[str]) -> int:
    from jsonargparse import ArgumentParser as RecipeParser

    from flexpredict.pretraining import run
    from flexpredict.training.recipe_parser import add_recipe, friendly_errors, instantiate
    from flexpredict.training.run_folder import RunFolder

    parser = RecipeParser(
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
        arguments = _several_data(arguments)
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
    from flexpredict.demo import run_demo

    parser = _parser(
        "demo",
        "Pre-train with sin-cos and with stochastic positions on the built-in scenes and compare both with an "
        "untrained encoder. Offline; about six minutes on two CPU cores.",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where to put the runs and results.json")
    parser.add_argument("--steps", type=int, default=None, help="optimiser steps of each run (fewer: a quick look)")
    parser.add_argument("--seed", type=int, default=0, help="weights, order, crops, masks and noise follow from it")
    options = parser.parse_args(arguments)
    run_demo(options.out, steps=options.steps, seed=options.seed)
    return 0


def _report(arguments: list[str]) -> int:
    from flexpredict.report import write_report

    parser = _parser("report", "Write the HTML page of a run.")
    parser.add_argument("run", type=Path, help="a run folder")
    print(write_report(parser.parse_args(arguments).run))
    return 0


def _parser(command: str, description: str) -> ArgumentParser:
    return ArgumentParser(prog=f"flexpredict {command}", description=description, allow_abbrev=False)


def _several_data(arguments: list[str]) -> list[str]:
    """`--data A B` is written `--data ["A", "B"]` for the parser of recipes."""
    if "--data" not in arguments:
        return arguments
    first = arguments.index("--data") + 1
    last = next((at for at in range(first, len(arguments)) if arguments[at].startswith("--")), len(arguments))
    if last - first < 2:
        return arguments
    return [*arguments[:first], json.dumps(arguments[first:last]), *arguments[last:]]


def _with_underscores(argument: str) -> str:
    """--image-size and --image_size are the same option."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


if __name__ == "__main__":
    sys.exit(main())
