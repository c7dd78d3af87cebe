"""`flexpredict inspect`."""

from flexpredict.commands import SOURCE, command_parser
from flexpredict.prepare.inspect import inspect
from flexpredict.settings.augmentation import PRESETS
from flexpredict.showing import show


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "inspect",
        "DATA ...",
        "Say what is in a set of images: counts, sizes, formats, classes, broken files and exact duplicates; and "
        "draw a contact sheet of it, with what the model will see of it after augmentation and masking.",
    )
    parser.add_argument("data", nargs="+", help=SOURCE)
    parser.add_argument("--out", default="inspection", help="where to put the pictures and lists")
    parser.add_argument("--sample", type=int, default=None, help="examine this many evenly spaced images only")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    parser.add_argument("--image_size", default=None, help="what the model will be given, as in pretrain")
    parser.add_argument("--patch_size", type=int, default=None, help="side of a patch, as in pretrain")
    parser.add_argument("--augmentation", choices=list(PRESETS), default="stop", help="as in pretrain")
    parser.add_argument("--seed", type=int, default=0, help="which images, crops and masks are drawn")
    show(inspect(**vars(parser.parse_args(arguments))))
    return 0
