"""`flexpredict probe`."""

from flexpredict.commands import SOURCE, command_parser
from flexpredict.commands.evaluation_options import (
    add_encoder,
    add_extraction,
    add_output,
    add_probing,
    bench,
    extraction,
    probing,
    publish,
)
from flexpredict.data.sources.opening import open_source
from flexpredict.evaluation.probe import probe


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "probe",
        "RUN --train DATA --test DATA",
        "Train a linear classifier on frozen features, with 1 %, 10 % and all of the labels, and classify by nearest "
        "neighbours beside it. Regularisation is chosen on held-out training images, never on test images; features "
        "are kept, so that another protocol with the same encoder costs seconds.",
    )
    add_encoder(parser)
    parser.add_argument("--train", nargs="+", required=True, help=f"labelled images: {SOURCE}")
    parser.add_argument("--test", nargs="+", required=True, help="the same, of the same classes")
    add_probing(parser, "shares of the labels (default: 0.01 0.1 1)")
    add_extraction(parser)
    add_output(parser, "results")
    options = parser.parse_args(arguments)
    place = bench(options)
    train, test = open_source(options.train), open_source(options.test)
    result = probe(
        place.encoder, train, test, extraction(options), probing(options), fabric=place.fabric, console=place.console
    )
    publish([result], options, place, "Accuracy on the test images, frozen encoder (%)")
    return 0
