"""`flexpredict finetune`."""

import dataclasses
from pathlib import Path

from jsonargparse import ArgumentParser
from lightning_fabric.utilities.rank_zero import rank_zero_only
from rich.console import Console

from flexpredict.commands import SOURCE
from flexpredict.commands.evaluation_options import add_encoder_name, introduce, opened
from flexpredict.data.sources.opening import open_source
from flexpredict.evaluation.finetuning import Finetuning, finetune
from flexpredict.evaluation.results import append_to_table, read_table
from flexpredict.training.recipe_parser import friendly_errors


def run(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="flexpredict finetune",
        usage="flexpredict finetune RUN --train DATA --test DATA --out FOLDER [OPTIONS]",
        description="Train all weights of an encoder, and a linear head, on labelled images; test once, at the end. "
        "The paper's Table 5 is --fraction 0.01.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    add_encoder_name(parser)
    parser.add_argument("--train", required=True, help=f"labelled images: {SOURCE}")
    parser.add_argument("--test", required=True, help="the same, of the same classes")
    parser.add_argument("--out", type=Path, default=Path("runs/finetune"), help="the folder to make")
    parser.add_argument("--table", type=Path, default=None, help="a CSV to add to, one row an encoder")
    parser.add_argument("--resume", action="store_true", help="continue the interrupted run in --out")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_class_arguments(Finetuning)
    with friendly_errors("finetune", Finetuning):
        built = parser.instantiate(parser.parse_args(arguments))
        settings = Finetuning(**{field.name: built[field.name] for field in dataclasses.fields(Finetuning)})
    if built.table is not None:
        read_table(built.table)  # what is wrong with it is said before the training, not after
    encoder = opened(built)
    rank_zero_only(introduce)(encoder, Console(soft_wrap=True))
    result = finetune(
        encoder,
        open_source(built.train),
        open_source(built.test),
        built.out,
        settings,
        resume=built.resume,
        overwrite=built.overwrite,
    )
    if result is None:
        return 130
    if built.table is not None:
        rank_zero_only(append_to_table)(result, built.table)
    return 0
