"""`flexpredict pack`."""

from pathlib import Path

from flexpredict.commands import SOURCE, command_parser
from flexpredict.data.sources.manifest import verify
from flexpredict.errors import UserError
from flexpredict.prepare.packing import pack


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "pack",
        "SOURCE ... OUT",
        "Convert images once into WebDataset shards at training resolution, which are several times quicker to read. "
        "Run it again to go on after an interruption. Then: flexpredict pretrain --data OUT",
    )
    parser.add_argument("source", nargs="*", help=SOURCE)
    parser.add_argument("out", type=Path, help="the folder for the shards")
    parser.add_argument("--size", type=int, default=256, help="shorter side of the packed images (default: 256)")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEGs, up to 95 (default: 90)")
    parser.add_argument("--images_per_shard", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--max_skipped", type=float, default=0.05, help="largest share of unreadable images")
    parser.add_argument("--verify", action="store_true", help="only check the shards in OUT against their checksums")
    options = parser.parse_intermixed_args(arguments)
    if options.verify:
        problems = verify(options.out)
        print("\n".join(problems) or f"{options.out}: all shards are as they were written.")
        return 2 if problems else 0
    if not options.source:
        raise UserError("Name the images to pack and the folder to pack them into: flexpredict pack FOLDER packed.")
    pack(
        options.source,
        options.out,
        size=options.size,
        quality=options.quality,
        images_per_shard=options.images_per_shard,
        workers=options.workers,
        max_skipped=options.max_skipped,
    )
    return 0
