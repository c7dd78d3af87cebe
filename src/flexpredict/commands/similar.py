"""`flexpredict similar`."""

from pathlib import Path

from flexpredict.commands import SOURCE, command_parser
from flexpredict.commands.evaluation_options import add_encoder, add_extraction
from flexpredict.features.similar import similar
from flexpredict.showing import show


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "similar",
        "RUN --data DATA --query IMAGE ...",
        "Find the images that an encoder takes for most alike: a table and a picture of the nearest neighbors of "
        "each query, by the cosine of their features. Features are kept, so that the next queries cost seconds.",
    )
    add_encoder(parser)
    parser.add_argument("--data", nargs="+", required=True, help=f"images to search: {SOURCE}")
    parser.add_argument(
        "--query", nargs="+", required=True, help="image files, or numbers of images of DATA (from 0 on)"
    )
    parser.add_argument("--top", type=int, default=8, help="neighbors of each query (default: 8)")
    parser.add_argument("--out", type=Path, default=Path("similar.png"), help="the picture (default: similar.png)")
    add_extraction(parser)
    show(similar(**vars(parser.parse_args(arguments))))
    return 0
