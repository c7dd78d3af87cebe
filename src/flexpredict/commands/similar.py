"""`flexpredict similar`."""

from pathlib import Path

from flexpredict.commands import SOURCE, command_parser
from flexpredict.commands.evaluation_options import add_encoder, add_extraction, extraction, started
from flexpredict.features.embedding import similar


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "similar",
        "RUN --data DATA --query IMAGE ...",
        "Find the images that an encoder takes for most alike: a table and a picture of the nearest neighbours of "
        "each query, by the cosine of their features. Features are kept, so that the next queries cost seconds.",
    )
    add_encoder(parser)
    parser.add_argument("--data", nargs="+", required=True, help=f"images to search: {SOURCE}")
    parser.add_argument(
        "--query", nargs="+", required=True, help="image files, or numbers of images of DATA (from 0 on)"
    )
    parser.add_argument("--top", type=int, default=8, help="neighbours of each query (default: 8)")
    parser.add_argument("--out", type=Path, default=Path("similar.png"), help="the picture (default: similar.png)")
    add_extraction(parser)
    options = parser.parse_args(arguments)
    place = started(options)
    similar(
        place.encoder,
        options.data,
        options.query,
        extraction(options),
        top=options.top,
        out=options.out,
        fabric=place.fabric,
        console=place.console,
    )
    return 0
