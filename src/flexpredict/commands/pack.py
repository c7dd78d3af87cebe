"""`flexpredict pack`."""

from flexpredict.commands import SOURCE, command_parser
from flexpredict.prepare.pack import pack
from flexpredict.showing import show


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "pack",
        "DATA ... OUT",
        "Convert images once into WebDataset shards at training resolution, which are several times quicker to read. "
        "Run it again to go on after an interruption. Then: flexpredict pretrain --data OUT",
    )
    parser.add_argument("data", nargs="*", help=SOURCE)
    parser.add_argument("out", help="the folder for the shards")
    parser.add_argument("--size", type=int, default=256, help="shorter side of the packed images (default: 256)")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEGs, up to 95 (default: 90)")
    parser.add_argument("--images_per_shard", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    parser.add_argument("--max_skipped", type=float, default=0.05, help="largest share of unreadable images")
    parser.add_argument("--verify", action="store_true", help="only check the shards in OUT against their checksums")
    show(pack(**vars(parser.parse_intermixed_args(arguments))))
    return 0
