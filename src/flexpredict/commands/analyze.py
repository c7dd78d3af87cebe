"""`flexpredict analyze FIGURE`."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flexpredict.commands import SOURCE, command_parser
from flexpredict.errors import UserError, did_you_mean
from flexpredict.studies.analyses.blur import draw_blur
from flexpredict.studies.analyses.norms import draw_norms
from flexpredict.studies.analyses.opening import open_model
from flexpredict.studies.analyses.output import Analysis
from flexpredict.studies.analyses.positions import draw_positions
from flexpredict.studies.analyses.predictions import draw_predictions
from flexpredict.studies.analyses.proposition1 import draw_proposition1

_USAGE = """\
usage: flexpredict analyze FIGURE RUN ... --out FOLDER [OPTIONS]

figures, each a PNG with its data beside it:
  positions     how alike a noisy position is to all others   flexpredict analyze positions runs/stop
  predictions   which tokens a prediction is like             flexpredict analyze predictions runs/sincos runs/stop
  norms         ‖A‖ and ‖m̃‖ against the noise level           flexpredict analyze norms runs/*
  blur          which frequencies of ψ the noise hides        flexpredict analyze blur runs/stop
  proposition1  the best predictor is a blur, by numbers      flexpredict analyze proposition1

RUN is a run folder, or (positions, predictions, blur) a published checkpoint of I-JEPA or StoP (.pth.tar).
`flexpredict analyze FIGURE --help` explains a figure and its options.
"""
_RUN = "run folder, or published checkpoint of I-JEPA or StoP"


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    figure, rest = arguments[0], arguments[1:]
    if figure not in _FIGURES:
        raise UserError(
            f"There is no figure '{figure}'.{did_you_mean(figure, _FIGURES)} The figures are: {', '.join(_FIGURES)}."
        )
    _publish(_FIGURES[figure](rest), Console(soft_wrap=True, highlight=False))
    return 0


def _positions(arguments: list[str]) -> Analysis:
    parser = command_parser(
        "analyze positions",
        "RUN",
        "Maps of the cosine of a query position with all sin-cos positions (Figure 5 of the paper): deterministic, "
        "for one draw of the noise, and on average over many. The table gives each at the query itself, at its "
        "neighbours, and at all other patches.",
    )
    parser.add_argument("run", help=_RUN)
    parser.add_argument("--queries", nargs="+", default=[], metavar="ROW,COLUMN", help="patches (default: four)")
    parser.add_argument("--draws", type=int, default=1000, help="of the noise, for the mean (default: 1000)")
    parser.add_argument("--noise_std", type=float, default=None, help="noise level (default: that of the run)")
    _add_usual(parser.add_argument, seed="which noise is drawn")
    options = parser.parse_args(arguments)
    return draw_positions(
        open_model(options.run, options.step, options.heads),
        options.out,
        queries=options.queries,
        noise_std=options.noise_std,
        draws=options.draws,
        seed=options.seed,
    )


def _predictions(arguments: list[str]) -> Analysis:
    parser = command_parser(
        "analyze predictions",
        "RUN [RUN]",
        "Predict a masked patch of an image and show which tokens of the image the prediction is like (Figure 6 of "
        "the paper): cosines with the target encoder's features of all patches, through a softmax. Only for runs of "
        "ijepa.",
    )
    parser.add_argument("run", nargs="+", help=f"one or two: {_RUN}")
    parser.add_argument("--image", type=Path, default=None, help="an image file")
    parser.add_argument("--data", default=None, help=f"where --index counts: {SOURCE} (default: the run's own data)")
    parser.add_argument("--index", type=int, default=0, help="number of an image, from 0 on (default: 0)")
    parser.add_argument(
        "--patch", default=None, metavar="ROW,COLUMN", help="a masked patch (default: the middle of a target block)"
    )
    parser.add_argument("--mask_seed", type=int, default=0, help="which mask is drawn (default: 0)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="of the softmax (default: 1, as the paper names none)"
    )
    _add_usual(parser.add_argument)
    options = parser.parse_args(arguments)
    return draw_predictions(
        [open_model(name, options.step, options.heads) for name in options.run],
        options.out,
        image=options.image,
        data=options.data,
        index=options.index,
        patch=options.patch,
        mask_seed=options.mask_seed,
        temperature=options.temperature,
    )


def _norms(arguments: list[str]) -> Analysis:
    parser = command_parser(
        "analyze norms",
        "RUN ...",
        "The norms of A and of the masked token's bias m̃ against the noise level, and over training (Figure 4 of the "
        "paper), from the logs of several runs. Runs of one level are averaged, with 95 % intervals.",
    )
    parser.add_argument("run", nargs="+", help="run folders of one or more noise levels")
    _add_out(parser.add_argument)
    options = parser.parse_args(arguments)
    return draw_norms(options.run, options.out)


def _blur(arguments: list[str]) -> Analysis:
    parser = command_parser(
        "analyze blur",
        "RUN ...",
        "What the learnt covariance hides: the variance of the noise in each frequency of the sin-cos positions, by "
        "itself and over that of ψ; its spectrum; and the level at which a token is taken for another place.",
    )
    parser.add_argument("run", nargs="+", help=f"one to six: {_RUN}")
    parser.add_argument("--noise_std", type=float, default=None, help="noise level (default: that of each run)")
    _add_usual(parser.add_argument, seed="which noise is drawn")
    options = parser.parse_args(arguments)
    models = [open_model(name, options.step, options.heads) for name in options.run]
    return draw_blur(models, options.out, noise_std=options.noise_std, seed=options.seed)


def _proposition1(arguments: list[str]) -> Analysis:
    parser = command_parser(
        "analyze proposition1",
        "",
        "On a line: the best predictor from a noisy place, in closed form, beside the Gaussian blur of Proposition 1 "
        "and a predictor that is learnt from samples. No run is needed.",
    )
    parser.add_argument("--seed", type=int, default=0, help="which samples are drawn (default: 0)")
    _add_out(parser.add_argument)
    options = parser.parse_args(arguments)
    return draw_proposition1(options.out, seed=options.seed)


_FIGURES: dict[str, Callable[[list[str]], Analysis]] = {
    "positions": _positions,
    "predictions": _predictions,
    "norms": _norms,
    "blur": _blur,
    "proposition1": _proposition1,
}


def _add_usual(add: Callable[..., object], seed: str | None = None) -> None:
    add("--step", type=int, default=None, help="of a kept checkpoint (default: the last)")
    add("--heads", type=int, default=None, help="attention heads of a published checkpoint that does not tell")
    if seed:
        add("--seed", type=int, default=0, help=f"{seed} (default: 0)")
    _add_out(add)


def _add_out(add: Callable[..., object]) -> None:
    add("--out", type=Path, default=Path("analysis"), help="folder for the picture and its data (default: analysis)")


def _publish(made: Analysis, console: Console) -> None:
    if made.table:
        table = Table()
        for title in made.table[0]:
            table.add_column(title)
        for row in made.table:
            table.add_row(*row.values())
        console.print(table)
    for line in made.lines:
        console.print(line, markup=False)
    console.print(f"Picture: {made.picture} · data: {made.data}", markup=False)
