"""`flexpredict embed`."""

from pathlib import Path

from flexpredict.commands import SOURCE, command_parser
from flexpredict.commands.evaluation_options import add_encoder, add_extraction
from flexpredict.features.embed import embed
from flexpredict.showing import show


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "embed",
        "RUN --data DATA --out FILE",
        "Write the features of all images into one file: a .parquet table (a row an image, with its name and class), "
        "or .npy or .safetensors arrays (names are then in a text file beside them). Memory does not grow with the "
        "number of images. Run it again to go on after an interruption: what is finished waits in FILE.parts.",
    )
    add_encoder(parser)
    parser.add_argument("--data", nargs="+", required=True, help=f"{SOURCE}; stream:DATA is read in order")
    parser.add_argument("--out", type=Path, required=True, help="a file that ends in .parquet, .npy or .safetensors")
    parser.add_argument("--patches", action="store_true", help="write the features of all patches too")
    parser.add_argument(
        "--dtype",
        choices=("float16", "float32"),
        default="float16",
        help="numbers of patch features; the pooled ones are float32 always (default: float16)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE, and parts of another encoder or data")
    add_extraction(parser)
    show(embed(**vars(parser.parse_args(arguments))))
    return 0
