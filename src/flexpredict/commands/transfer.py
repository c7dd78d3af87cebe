"""`flexpredict transfer`."""

from flexpredict.commands import command_parser
from flexpredict.commands.evaluation_options import add_encoder, add_extraction, add_output, add_probing
from flexpredict.evaluation.transfer import transfer
from flexpredict.showing import show


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "transfer",
        "RUN --datasets A B ...",
        "The linear probe over several data sets in one table, as in Table 4 of the paper (CIFAR-100, Places205, "
        "iNaturalist 2018, or any other labelled images).",
    )
    add_encoder(parser)
    parser.add_argument(
        "--datasets",
        nargs="+",
        required=True,
        help="each DATA, NAME=DATA or NAME=TRAIN::TEST; DATA is a folder with train and test (or val) below, parquet "
        "files with such splits, hf://NAME, or scenes",
    )
    add_probing(parser, "shares of the labels (default: 1)")
    add_extraction(parser)
    add_output(parser, "results")
    show(transfer(**vars(parser.parse_args(arguments))))
    return 0
