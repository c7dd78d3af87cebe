"""`flexpredict finetune`."""

from pathlib import Path

from jsonargparse import ArgumentParser

from flexpredict.commands import SOURCE
from flexpredict.commands.evaluation_options import add_encoder_name
from flexpredict.evaluation.finetuning import finetune
from flexpredict.settings.finetuning import Finetuning
from flexpredict.showing import show
from flexpredict.training.recipe_parser import friendly_errors

_OPENING = ("encoder", "which", "heads", "grid", "partial")
_DECLARED_HERE = (*_OPENING, "train", "test", "out", "table", "resume", "overwrite")


def run(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="flexpredict finetune",
        usage="flexpredict finetune RUN --train DATA --test DATA --out FOLDER [OPTIONS]",
        description="Train all weights of an encoder, and a linear head, on labeled images; test once, at the end. "
        "The paper's Table 5 is --fraction 0.01.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    add_encoder_name(parser)
    parser.add_argument("--train", required=True, help=f"labeled images: {SOURCE}")
    parser.add_argument("--test", required=True, help="the same, of the same classes")
    parser.add_argument("--out", type=Path, default=Path("runs/finetune"), help="the folder to make")
    parser.add_argument("--table", type=Path, default=None, help="a CSV to add to, one row an encoder")
    parser.add_argument("--resume", action="store_true", help="continue the interrupted run in --out")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_function_arguments(finetune, skip={*_DECLARED_HERE})
    with friendly_errors("finetune", Finetuning):
        given = parser.instantiate(parser.parse_args(arguments))
    result = finetune(**given)
    if result is None:
        return 130
    show(result)
    return 0
