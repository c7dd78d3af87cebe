"""`flexpredict transfer`."""

from flexpredict.commands import command_parser
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
from flexpredict.evaluation.transfer import transfer


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
    options = parser.parse_args(arguments)
    place = bench(options)
    results = transfer(
        place.encoder,
        options.datasets,
        extraction(options),
        probing(options, labels=(1.0,)),
        fabric=place.fabric,
        console=place.console,
    )
    publish(results, options, place, "Transfer: accuracy on the test images, frozen encoder (%)")
    return 0
