"""Options that all evaluations share: which encoder, how features are made, where results go."""

import re
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.encoders.frozen import FrozenEncoder, open_encoder
from flexpredict.errors import UserError
from flexpredict.evaluation.probe import Probing, table_rows
from flexpredict.evaluation.results import Result, append_to_table, print_numbers, read_table, write_result
from flexpredict.features.extraction import Extraction
from flexpredict.training.engine import launch_fabric
from flexpredict.training.recipe import parse_image_sizes

ENCODER = (
    "a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …: .pth.tar, .pth, .safetensors), a Hugging Face or timm "
    "folder, timm:NAME (timm:NAME,pretrained=no untrained), or hf:NAME"
)


@dataclass
class Bench:
    """What an evaluation works with."""

    encoder: FrozenEncoder
    fabric: Fabric
    console: Console


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
    parser.add_argument("--neighbours", type=int, default=20, help="k of k-NN, 0 for none (default: 20)")
    parser.add_argument("--l2", type=float, default=None, help="regularisation (default: chosen on training images)")
    parser.add_argument("--seed", type=int, default=0, help="of the subsets and of what is held out (default: 0)")


def add_output(parser: ArgumentParser, out: str) -> None:
    parser.add_argument("--out", type=Path, default=Path(out), help=f"where to write results (default: {out})")
    parser.add_argument("--table", type=Path, default=None, help="a CSV to add to, one row an encoder")


def bench(options: Namespace) -> Bench:
    """Open the encoder and start the processes, once it is clear that results can be written."""
    if options.out.is_file() and options.out.suffix != ".json":
        raise UserError(f"--out {options.out} is a file. Name a folder, or a file that ends in .json.")
    if options.table is not None:
        read_table(options.table)
    return started(options)


def started(options: Namespace) -> Bench:
    """The processes, and the encoder, which is introduced."""
    fabric = launch_fabric(options.accelerator, options.devices)
    encoder = opened(options)
    console = Console(soft_wrap=True, quiet=not fabric.is_global_zero)
    introduce(encoder, console)
    return Bench(encoder, fabric, console)


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
    for line in encoder.details:
        console.print(f"  {line}", highlight=False, markup=False)


def extraction(options: Namespace) -> Extraction:
    return Extraction(
        layers=options.layers,
        pooling=options.pooling,
        image_size=single_size(options),
        batch_size=options.batch_size,
        precision=options.precision,
        workers=options.workers,
    )


def probing(options: Namespace, labels: tuple[float, ...] | None = None) -> Probing:
    return Probing(
        labels=tuple(options.labels) if options.labels else labels,
        subsets=options.subsets,
        label_lists=tuple(options.label_list),
        neighbours=options.neighbours,
        l2=options.l2,
        seed=options.seed,
    )


def publish(results: list[Result], options: Namespace, place: Bench, title: str) -> None:
    """Print a table; write a JSON file for each result, and add to the table of all encoders."""
    if not place.fabric.is_global_zero:
        return
    settings = results[0].protocol["settings"]
    print_numbers(place.console, f"{title}: {place.encoder.what}{settings and f', {settings}'}", table_rows(results))
    written = []
    for result in results:
        for images in (result.protocol["train"], result.protocol["test"]):
            if images["unreadable"]:
                warning = f"{images['unreadable']} images of {images['data']} could not be read and were left out."
                place.console.print(f"Warning: {warning}", highlight=False, markup=False)
        path = _place(result, options.out, alone=len(results) == 1)
        write_result(result, path)
        written.append(str(path))
        if options.table is not None:
            append_to_table(result, options.table)
    also = f" · table: {options.table}" if options.table else ""
    place.console.print(f"Written: {', '.join(written)}{also}", highlight=False, markup=False)


def _place(result: Result, out: Path, alone: bool) -> Path:
    """A file of its own for each task, data set, encoder and setting, so that no result overwrites another."""
    data = "/".join(Path(result.data).parts[-2:])
    which = "context" if result.encoder.startswith("context ") else ""
    words = (result.task, data, result.protocol["encoder"], which, result.protocol["settings"])
    name = "-".join(re.sub(r"[^\w.]+", "-", word).strip("-.") for word in words if word)
    if out.suffix == ".json":
        return out if alone else out.with_name(f"{out.stem}-{name}.json")
    return out / f"{name}.json"
