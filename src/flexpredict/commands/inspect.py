"""`flexpredict inspect`."""

from pathlib import Path

from flexpredict.commands import SOURCE, command_parser
from flexpredict.prepare.inspection import inspect
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.recipe import parse_image_sizes


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "inspect",
        "SOURCE ...",
        "Say what is in a set of images: counts, sizes, formats, classes, broken files and exact duplicates; and "
        "draw a contact sheet of it, with what the model will see of it after augmentation and masking.",
    )
    parser.add_argument("source", nargs="+", help=SOURCE)
    parser.add_argument("--out", type=Path, default=Path("inspection"), help="where to put the pictures and lists")
    parser.add_argument("--sample", type=int, default=None, help="look at so many evenly spaced images only")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--image_size", default=None, help="what the model will be given, as in pretrain")
    parser.add_argument("--patch_size", type=int, default=None, help="side of a patch, as in pretrain")
    parser.add_argument("--augmentation", choices=list(PRESETS), default="stop", help="as in pretrain")
    parser.add_argument("--seed", type=int, default=0, help="which images, crops and masks are drawn")
    options = parser.parse_args(arguments)
    inspect(
        options.source,
        options.out,
        sample=options.sample,
        workers=options.workers,
        image_size=parse_image_sizes(options.image_size)[0] if options.image_size else None,
        patch_size=options.patch_size,
        augmentation=PRESETS[options.augmentation],
        seed=options.seed,
    )
    return 0
