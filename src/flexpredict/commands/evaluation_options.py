"""Options that all evaluations share: which encoder, how features are made, where results go."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.console import Console

from flexpredict.encoders.frozen import FrozenEncoder, open_encoder
from flexpredict.errors import UserError
from flexpredict.settings.recipe import parse_image_sizes

ENCODER = (
    "a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …: .pth.tar, .pth, .safetensors), a Hugging Face or timm "
    "folder, timm:NAME (timm:NAME,pretrained=no untrained), or hf:NAME"
)


def add_encoder(parser: ArgumentParser) -> None:
    """The encoder, and the hardware it runs on."""
    add_encoder_name(parser)
    parser.add_argument("--accelerator", default="auto", help="'auto', 'cpu', 'cuda' or 'mps'")
    parser.add_argument("--devices", default="1", help="number of devices that share the work (default: 1)")
    parser.add_argument(
        "--precision",
        choices=("32-true", "bf16-mixed"),
        default="32-true",
        help="of the encoder; bf16-mixed is faster on GPUs (default: 32-true)",
    )


def add_encoder_name(parser: ArgumentParser, needed: bool = True) -> None:
    parser.add_argument("encoder", nargs=None if needed else "?", help=ENCODER)
    parser.add_argument(
        "--which", choices=("target", "context"), default="target", help="of two encoders (default: target)"
    )
    parser.add_argument("--heads", type=int, default=None, help="attention heads, if a checkpoint does not tell")
    parser.add_argument("--grid", default=None, help="rows x columns of patches, 4x16, if a checkpoint does not tell")
    parser.add_argument(
        "--partial", action="store_true", help="take a checkpoint although tensors are missing or left over"
    )


def add_extraction(parser: ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=1, help="last layers side by side (paper: 1 and 4; default: 1)")
    parser.add_argument(
        "--pooling",
        choices=("mean", "class"),
        default=None,
        help="mean of the patches, or class token (default: the encoder's own way)",
    )
    parser.add_argument("--image_size", default=None, help="height x width, 224 or 256x192 (default: as trained)")
    parser.add_argument("--batch_size", type=int, default=64, help="images at a time (default: 64)")
    parser.add_argument("--workers", type=int, default=0, help="processes that read images (default: none)")


def add_probing(parser: ArgumentParser, labels: str) -> None:
    parser.add_argument("--labels", type=float, nargs="+", default=None, help=labels)
    parser.add_argument("--subsets", type=int, default=5, help="draws of each share below 1 (default: 5)")
    parser.add_argument(
        "--label_list", type=Path, nargs="+", default=[], help="files that name the images of a subset, one a line"
    )
    parser.add_argument("--neighbors", type=int, default=20, help="k of k-NN, 0 for none (default: 20)")
    parser.add_argument("--l2", type=float, default=None, help="regularization (default: chosen on training images)")
    parser.add_argument("--seed", type=int, default=0, help="of the subsets and of what is held out (default: 0)")


def add_output(parser: ArgumentParser, out: str) -> None:
    parser.add_argument("--out", type=Path, default=Path(out), help=f"where to write results (default: {out})")
    parser.add_argument("--table", type=Path, default=None, help="a CSV to add to, one row an encoder")


def opened(options: Namespace) -> FrozenEncoder:
    """The encoder that was asked for, see `add_encoder_name`."""
    return open_encoder(
        options.encoder,
        which=options.which,
        heads=options.heads,
        grid=parse_image_sizes(options.grid)[0] if options.grid else None,
        partial=options.partial,
    )


def single_size(options: Namespace) -> tuple[int, int] | None:
    """The --image_size of a command that has one."""
    given = getattr(options, "image_size", None)
    sizes = parse_image_sizes(given) if given else [None]
    if len(sizes) > 1:
        raise UserError(f"image_size is {given}; images are all shown at one size, such as 224.")
    return sizes[0]


def introduce(encoder: FrozenEncoder, console: Console) -> None:
    """Say what was found."""
    console.print(f"Encoder: {encoder.what}, {encoder.depth} layers of {encoder.dim}", highlight=False, markup=False)
    for line in encoder.found:
        console.print(f"  {line}", highlight=False, markup=False)
