"""`flexpredict ablate`."""

from pathlib import Path
from typing import Any

from jsonargparse import SUPPRESS, ArgumentParser

from flexpredict import demo
from flexpredict.commands import ablate_task
from flexpredict.commands.pretrain import several_data
from flexpredict.errors import UserError
from flexpredict.studies.ablations.ablating import ablate
from flexpredict.studies.ablations.measuring import Measuring
from flexpredict.studies.ablations.planning import Ablation
from flexpredict.studies.ablations.studies import PAPER, SEARCH, names_of
from flexpredict.studies.ablations.study import Choices
from flexpredict.training.recipe_parser import add_recipe, friendly_errors, instantiate

_DESCRIPTION = f"""\
Ask a question with several seeds: pre-train every arm, measure the encoders (linear probes with 1 % and all of the
labels, k-NN, what features tell of the place, what shifts of the image do), and write tables with 95 % intervals
and paired differences, and a figure. Runs of one seed differ in nothing but what is varied. Without --test, a tenth
of the images is held out for validation before pre-training. What is done is not done again by the same command.

studies of the paper: {", ".join(f"{name} ({what})" for name, what in PAPER.items())}; paper (all of these)
studies of the recipe: {", ".join(f"{name} ({what})" for name, what in SEARCH.items())}; search (all of these)
on the built-in scenes: where (stochastic positions where the place of parts is ever freer, at several levels)
"""


def run(arguments: list[str]) -> int:
    if arguments and arguments[0].startswith("--task="):
        return ablate_task.run(Path(arguments[0].removeprefix("--task=")))
    parser = _parser()
    if _at_demo_size(arguments):
        parser.set_defaults(_demo_recipe(arguments))
    with friendly_errors("ablate"):
        options = parser.parse_args(several_data(arguments))
        recipe = instantiate(parser, options)
    names_of(options.study)
    if recipe.minutes is not None:
        raise UserError(
            f"minutes is {recipe.minutes:g}, which would give each arm another length. Use --epochs, one for all."
        )
    asked = Ablation(
        study=options.study,
        base=recipe,
        test=options.test,
        holdout=options.holdout,
        seeds=options.seeds,
        out=options.out,
        choices=Choices(options.noise, tuple(options.levels), tuple(options.where), options.l1_weight),
        measuring=Measuring(tuple(options.labels), images=options.location_images),
        jobs=options.jobs,
        nice=options.nice,
        chapter=options.chapter,
    )
    done = ablate(asked, dry_run=options.dry_run)
    return 0 if done or options.dry_run else 130


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="flexpredict ablate",
        usage="flexpredict ablate STUDY --data DATA [--test DATA] [--seeds 3] [OPTIONS]",
        description=_DESCRIPTION,
        exit_on_error=False,
        allow_abbrev=False,
    )
    usual, measuring = Choices(), Measuring()
    add = parser.add_argument
    add("study", type=str, help="one of the studies above")
    add("--test", type=str, default=None, help="labelled images to test on, instead of validation")
    add("--holdout", type=float, default=0.1, help="share of the images for validation, where there is no --test")
    add("--seeds", type=int, default=None, help="runs of each arm, from --seed on (by default 3; where: 5)")
    add("--labels", type=float, nargs="+", default=list(measuring.labels), help="shares of the labels of the probes")
    add("--location_images", type=int, default=measuring.images, help="images to measure location with, at most")
    add("--noise", type=float, default=usual.noise, help="noise level of the paper's studies (paper: 0.2)")
    add("--levels", type=float, nargs="+", default=[], help="what fig3, fig4, noise, ema, lr, grid, where vary")
    add("--where", type=float, nargs="+", default=list(usual.where), help="how free parts are, in the study where")
    add("--l1_weight", type=float, default=usual.l1, help="of the penalty in the study l1")
    add("--jobs", type=int, default=None, help="runs at a time (by default one for each core)")
    add("--nice", type=int, default=0, help="0 to 19: how much other processes come first")
    add("--out", type=Path, default=Path("ablations"), help="folder for runs, tables and figures")
    add("--chapter", type=Path, default=None, help="folder for a page with the results, such as studies/table6")
    add("--dry_run", action="store_true", help="show the plan and how long it would take")
    add("--task", default=None, help=SUPPRESS)
    add_recipe(parser)
    return parser


def _at_demo_size(arguments: list[str]) -> bool:
    """The scenes without a recipe or a model of one's own: as `flexpredict demo` trains on them."""
    words = [argument.split("=")[0] for argument in arguments]
    scenes = _given("--data", arguments).startswith("scenes")
    return scenes and "--config" not in words and "--model" not in words


def _given(option: str, arguments: list[str]) -> str:
    """What a command line says for an option, before it is parsed."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == option:
            return following
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return ""


def _demo_recipe(arguments: list[str]) -> dict[str, Any]:
    values = demo.recipe_values("StoP", demo.STEPS, seed=0)
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name == "predictor" and _given("--method", arguments) == "data2vec":
            continue  # it has none
        if name in ("optimizer", "predictor"):
            flat |= {f"{name}.{inner}": entry for inner, entry in value.items()}
        elif name not in ("positions", "seed", "data"):
            flat[name] = value
    return flat
