"""`flexpredict evaluate clevr`, `flexpredict evaluate davis` and `flexpredict evaluate location`."""

from pathlib import Path

from flexpredict.commands import SOURCE, command_parser
from flexpredict.commands.evaluation_options import (
    ENCODER,
    add_encoder,
    add_encoder_name,
    add_extraction,
    add_output,
    add_probing,
)
from flexpredict.errors import UserError, did_you_mean
from flexpredict.evaluation.clevr import evaluate_clevr
from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.location import evaluate_location
from flexpredict.showing import show

_USAGE = """\
usage: flexpredict evaluate TASK RUN --data DATA [OPTIONS]

tasks:
  clevr      count objects and tell how far the nearest is   flexpredict evaluate clevr RUN --data CLEVR_v1.0
  davis      follow objects through videos                   flexpredict evaluate davis RUN --data DAVIS
  location   what features tell of the place of a patch      flexpredict evaluate location RUN --data DATA

RUN is {encoder}.
`--data scenes` tries each on the built-in scenes. `flexpredict evaluate TASK --help` explains a task.
"""


def run(arguments: list[str]) -> int:
    tasks = {"clevr": _clevr, "davis": _davis, "location": _location}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE.format(encoder=ENCODER), end="")
        return 0
    if arguments[0] not in tasks:
        raise UserError(
            f"There is no task '{arguments[0]}' to evaluate.{did_you_mean(arguments[0], tasks)} The tasks are clevr, "
            "davis and location; classification is `flexpredict probe`."
        )
    return tasks[arguments[0]](arguments[1:])


def _clevr(arguments: list[str]) -> int:
    parser = command_parser(
        "evaluate clevr",
        "RUN --data CLEVR_v1.0",
        "Linear probes on CLEVR: Count, the number of objects, and Dist, the distance of the nearest in six bins, in "
        "VTAB's definitions; trained on the train split, tested on val.",
    )
    add_encoder(parser)
    parser.add_argument("--data", required=True, help="the folder CLEVR_v1.0, or scenes, or scenes:3000,size=64")
    parser.add_argument("--tasks", choices=("count", "dist"), nargs="+", default=None, help="(default: both)")
    add_probing(parser, "shares of the labels (default: 1)")
    add_extraction(parser)
    add_output(parser, "results")
    parser.set_defaults(neighbors=0)
    show(evaluate_clevr(**vars(parser.parse_args(arguments))))
    return 0


def _davis(arguments: list[str]) -> int:
    parser = command_parser(
        "evaluate davis",
        "RUN --data DAVIS",
        "Semi-supervised video object segmentation: the masks of the first frame are carried on from patch to "
        "similar patch, by DINO's protocol. Writes masks, overlays and scores (J, F, recall, decay) into --out.",
    )
    add_encoder_name(parser, needed=False)
    parser.add_argument("--data", required=True, help="the DAVIS folder, or scenes:8,size=96 for built-in videos")
    parser.add_argument("--score_only", type=Path, metavar="MASKS", help="score masks that another method made")
    parser.add_argument("--split", default="val", help="list of sequences in ImageSets (default: val)")
    parser.add_argument("--year", choices=("2016", "2017"), default="2017", help="2016: all objects are one")
    parser.add_argument("--queue", type=int, default=7, help="frames before, besides the first (default: 7)")
    parser.add_argument("--radius", type=int, default=12, help="of the neighbourhood, in patches (default: 12)")
    parser.add_argument("--top_k", type=int, default=5, help="most similar patches that vote (default: 5)")
    parser.add_argument("--temperature", type=float, default=0.1, help="of the similarities (default: 0.1)")
    parser.add_argument("--height", type=int, default=480, help="shorter side of the frames (default: 480)")
    parser.add_argument("--overlays", choices=("gif", "mp4", "none"), default="gif", help="films to look at")
    parser.add_argument("--accelerator", default="auto", help="'auto', 'cpu', 'cuda' or 'mps'")
    add_output(parser, "results/davis")
    show(evaluate_davis(**vars(parser.parse_args(arguments))))
    return 0


def _location(arguments: list[str]) -> int:
    parser = command_parser(
        "evaluate location",
        "RUN --data DATA",
        "What features tell of the place of a patch: the location share (the part of their variance that the place "
        "explains), and row and column read off single patches by a linear regression; and how far pooled features "
        "move, and how much accuracy a linear probe loses, when test images are shifted by fractions of a patch and "
        "by whole patches. Images need no labels; without them there are no accuracies.",
    )
    add_encoder(parser)
    parser.add_argument("--data", nargs="+", required=True, help=f"images to fit on: {SOURCE}")
    parser.add_argument("--test", nargs="+", default=None, help="images to test on (default: one half of --data)")
    parser.add_argument(
        "--shifts", type=int, default=None, help="largest shift in patches (default: 3, at most half the grid)"
    )
    parser.add_argument(
        "--images", type=int, default=None, help="at most so many to fit on, and as many to test on (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the halves and of what is held out (default: 0)")
    add_extraction(parser)
    add_output(parser, "results")
    show(evaluate_location(**vars(parser.parse_args(arguments))))
    return 0
