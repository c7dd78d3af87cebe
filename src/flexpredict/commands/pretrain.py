"""`flexpredict pretrain`."""

import json
from pathlib import Path

from jsonargparse import ArgumentParser

from flexpredict import pretraining
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.recipe_parser import add_recipe, choose_length, friendly_errors, instantiate


def run(arguments: list[str]) -> int:
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
        arguments = several_data(arguments)
        namespace = parser.parse_args(arguments)
        if namespace.resume:
            # The run's own recipe is what all options default to; those given must then agree with it.
            config = RunFolder(namespace.out).config
            RunFolder(namespace.out).load_config()
            namespace = parser.parse_args([f"--config={config}", *arguments])
        given = {argument.removeprefix("--").partition("=")[0] for argument in arguments}
        recipe = choose_length(instantiate(parser, namespace), given)
    outcome = pretraining.run(recipe, namespace.out, resume=namespace.resume, overwrite=namespace.overwrite)
    return 0 if outcome.finished else 130


def several_data(arguments: list[str]) -> list[str]:
    """`--data A B` is written `--data ["A", "B"]` for the parser of recipes."""
    if "--data" not in arguments:
        return arguments
    first = arguments.index("--data") + 1
    last = next((at for at in range(first, len(arguments)) if arguments[at].startswith("--")), len(arguments))
    if last - first < 2:
        return arguments
    return [*arguments[:first], json.dumps(arguments[first:last]), *arguments[last:]]
