"""`flexpredict probe`."""

from flexpredict.commands import SOURCE, command_parser
from flexpredict.commands.evaluation_options import add_encoder, add_extraction, add_output, add_probing
from flexpredict.evaluation.probe import probe
from flexpredict.showing import show


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "probe",
        "RUN --train DATA --test DATA",
        "Train a linear classifier on frozen features, with 1 %, 10 % and all of the labels, and classify by nearest "
        "neighbours beside it. Regularization is chosen on held-out training images, never on test images; features "
        "are kept, so that another protocol with the same encoder costs seconds.",
    )
    add_encoder(parser)
    parser.add_argument("--train", nargs="+", required=True, help=f"labelled images: {SOURCE}")
    parser.add_argument("--test", nargs="+", required=True, help="the same, of the same classes")
    add_probing(parser, "shares of the labels (default: 0.01 0.1 1)")
    add_extraction(parser)
    add_output(parser, "results")
    show(probe(**vars(parser.parse_args(arguments))))
    return 0
