"""`flexpredict export`."""

import argparse
import textwrap
from pathlib import Path

from rich.console import Console

from flexpredict.commands import command_parser
from flexpredict.commands.evaluation_options import add_encoder_name, introduce, opened, single_size
from flexpredict.exports import FORMATS, export

_FORMATS = """\
formats:
  timm          a folder        timm.create_model("local-dir:FOLDER", pretrained=True)
  hf            a folder        IJepaModel.from_pretrained("FOLDER"); ViTModel with a class token, Dinov2Model with
                                layer scales, Dinov2WithRegistersModel with registers, BeitModel
                                with relative positions
  official      a .pth.tar      the layout of the published I-JEPA and StoP files; of a run, the predictor too
  onnx          an .onnx file   onnxruntime and others; needs pip install 'flexpredict[onnx]'
  torch-export  a .pt2 file     torch.export.load("FILE"), without any model code

The last two take pixel_values (normalized images, any number) and give patch_features and pooled.

examples:
  flexpredict export runs/mine --format timm --out exported/mine
  flexpredict export runs/mine --format hf --out exported/mine-hf --license apache-2.0 --results results/
  flexpredict export runs/mine --format onnx --out mine.onnx --image_size 192x256
  flexpredict export timm:vit_small_patch16_224 --format hf --out exported/vit
"""


def run(arguments: list[str]) -> int:
    parser = command_parser(
        "export",
        f"RUN --format {'|'.join(FORMATS)} --out PLACE",
        textwrap.fill(
            "Hand an encoder over to other libraries, with a model card. What was written is read back by the "
            "library itself and must give the same features as the original, or nothing is left of it.",
            100,
        ),
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _FORMATS
    add_encoder_name(parser)
    parser.add_argument("--format", required=True, metavar="FORMAT", help="see below")
    parser.add_argument("--out", type=Path, required=True, help="the folder or file to write")
    parser.add_argument(
        "--image_size", default=None, help="positions for another size, 160 or 192x256 (default: as trained)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=None,
        help="folder of evaluations' JSON files; those of this encoder go into the card",
    )
    parser.add_argument("--license", default=None, help="of the weights, for the card, such as apache-2.0")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    encoder = opened(options)
    introduce(encoder, console)
    console.print(f"Writing it as {options.format}, then reading it back to compare ...")
    made = export(
        encoder,
        options.format,
        options.out,
        image_size=single_size(options),
        results=options.results,
        license=options.license,
        overwrite=options.overwrite,
    )
    if options.results is not None:
        others = made.measured.of_other_weights
        left_out = f"; {others} of the same name were measured on other weights and left out" if others else ""
        console.print(f"Results in the card: {len(made.measured.results)}{left_out}")
    console.print(
        f"Written: {made.out} · model card: {made.card}",
        *made.notes,
        f"Largest difference to the original: {made.difference}",
        f"Load it: {made.load}",
        sep="\n",
    )
    return 0
