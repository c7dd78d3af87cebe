"""`flexpredict ablate`."""

import dataclasses
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from flexpredict import demo
from flexpredict.commands.pretrain import several_data
from flexpredict.errors import UserError
from flexpredict.settings.positions import Positions
from flexpredict.studies.ablations.ablating import Ablation, ablate, default_test
from flexpredict.studies.ablations.studies import LEVELS, find_studies
from flexpredict.training.recipe_parser import add_recipe, friendly_errors, instantiate

_DESCRIPTION = """\
Ask a question of the paper again: pre-train every arm with several seeds, probe the encoders with 1 % and all of the
labels, and write a table with 95 % intervals and paired differences beside the paper's column, and a figure.
Runs of one seed differ in nothing but what is varied. What is done is not done again: the same command goes on.

studies: table6 (positions), table7 (noise on which tokens), table8 (half resolution), fig3 (level and covariance),
fig4 (norms of A and m̃), l1 (L1 on A), covariance (tied, fixed, untied, diagonal, from the image), all
"""


def run(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="flexpredict ablate",
        usage="flexpredict ablate STUDY --data DATA --test DATA [--seeds 3] [OPTIONS]",
        description=_DESCRIPTION,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("study", type=str, help="one of the studies above, or all")
    parser.add_argument("--test", type=str, default=None, help="labelled images to test on (scenes have their own)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each arm; seeds count up from --seed")
    parser.add_argument(
        "--labels", type=float, nargs="+", default=[0.01, 1.0], help="shares of the labels of the probes"
    )
    parser.add_argument("--levels", type=float, nargs="+", default=list(LEVELS), help="noise levels of fig3 and fig4")
    parser.add_argument("--l1_weight", type=float, default=1e-5, help="of the penalty in the study l1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, which share the cores")
    parser.add_argument("--out", type=Path, default=Path("ablations"), help="folder for runs, tables and figures")
    parser.add_argument("--dry_run", action="store_true", help="show the plan and how long it would take")
    add_recipe(parser)
    if _at_demo_size(arguments):
        parser.set_defaults(_demo_recipe(arguments))
    with friendly_errors("ablate"):
        namespace = parser.parse_args(several_data(arguments))
        recipe = instantiate(parser, namespace)
    _refuse_positions(recipe.positions)
    if recipe.minutes is not None:
        raise UserError(
            f"minutes is {recipe.minutes:g}, which would give each arm another length. Use --epochs, one for all."
        )
    base: dict[str, Any] = {
        name: value for name, value in dataclasses.asdict(recipe).items() if name not in ("positions", "seed")
    }
    if recipe.data is None:
        raise UserError("Name the images to pre-train on with --data: a folder, or 'scenes' for the built-in ones.")
    done = ablate(
        Ablation(
            find_studies(namespace.study, tuple(namespace.levels), namespace.l1_weight),
            base,
            namespace.test or default_test(recipe.data),
            tuple(range(recipe.seed, recipe.seed + namespace.seeds)),
            namespace.out,
            tuple(namespace.labels),
            namespace.jobs,
        ),
        dry_run=namespace.dry_run,
    )
    return 0 if done or namespace.dry_run else 130


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


def _refuse_positions(positions: Positions) -> None:
    """Each arm has its own. Kind and level are in every recipe and may be there, for nothing."""
    usual = Positions(positions.kind, positions.noise_std, positions.noise_to_signal)
    changed = [field.name for field in dataclasses.fields(Positions) if _differs(field.name, positions, usual)]
    if changed:
        raise UserError(
            f"positions.{changed[0]} is given, and positions are what ablations vary: each arm has its own. Leave it "
            "out; noise levels are given by --levels."
        )


def _differs(name: str, one: Positions, other: Positions) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


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
