"""`export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from flexpredict.features.arguments import EncoderLike, SizeLike, Which
from flexpredict.settings.extraction import one_image_size
from flexpredict.showing import SimpleResult

if TYPE_CHECKING:
    from flexpredict.exports import Exported


@dataclass(frozen=True)
class ExportResult(SimpleResult):
    """An export.

    Args:
        exported: the files, how they differ from the original, and how to load them.
        pushed: the address of the model on the Hugging Face Hub, if it was uploaded.
    """

    exported: "Exported"
    pushed: str | None = None

    @property
    def files(self) -> list[Path]:
        return [self.exported.out, self.exported.card]

    def tables(self) -> list[tuple[str, Table | None]]:
        """As text: a line of code must not be broken to fit into a table."""
        made = self.exported
        others = made.measured.of_other_weights
        left_out = f"; {others} of the same name were measured on other weights and left out" if others else ""
        lines = [
            f"Results in the card: {len(made.measured.results)}{left_out}",
            *made.notes,
            f"Largest difference to the original: {made.difference}",
            f"Load it: {made.load}",
            *([f"Uploaded: {self.pushed}"] if self.pushed else []),
        ]
        return [("\n".join(lines), None)]

    def to_dict(self) -> dict[str, Any]:
        made = self.exported
        return {
            "out": str(made.out),
            "card": str(made.card),
            "difference": str(made.difference),
            "load": made.load,
            "results": len(made.measured.results),
            "notes": list(made.notes),
            "pushed": self.pushed,
        }


def export(
    encoder: EncoderLike,
    format: Literal["timm", "hf", "official", "onnx", "torch-export"],
    out: str | Path,
    *,
    image_size: SizeLike | None = None,
    results: str | Path | None = None,
    license: str | None = None,
    overwrite: bool = False,
    push: str | None = None,
    private: bool = False,
    which: Which = "target",
    heads: int | None = None,
    grid: str | None = None,
    partial: bool = False,
) -> ExportResult:
    """Write an encoder in the format of another library, with a model card.

    The library itself reads back what was written. Unless that gives the same features as the original, nothing is
    left behind. The formats: timm, a folder for timm.create_model("local-dir:FOLDER", pretrained=True); hf, a folder
    for transformers (IJepaModel, or ViTModel, Dinov2Model, BeitModel as the encoder needs); official, a .pth.tar file
    as published for I-JEPA and StoP, for a run with its predictor; onnx, an .onnx file for onnxruntime; torch-export,
    a .pt2 file for torch.export.load. The last two take pixel_values (normalized images) and give patch_features and
    pooled.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        format: the format.
        out: the folder (timm, hf) or file to write.
        image_size: resize positions for images of another size, 160 or 192x256 (default: as trained).
        results: folder of the JSON files of evaluations; results of this encoder go into the model card.
        license: license of the weights for the model card, such as apache-2.0.
        overwrite: replace an earlier export.
        push: upload the export with its card to the Hugging Face Hub, as this model: USER/NAME.
        private: the model on the Hub, if it is new, is visible to its owner only.
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
    """
    size = one_image_size(image_size)
    from flexpredict.exports import check_place
    from flexpredict.exports import export as export_encoder
    from flexpredict.exports.pushing import check_push
    from flexpredict.exports.pushing import push as push_export
    from flexpredict.features.workspace import open_workspace
    from flexpredict.training.engine import launch_fabric

    check_place(format, Path(out), overwrite)
    if push is not None:
        check_push(push)
    space = open_workspace(encoder, launch_fabric("cpu", 1), which, heads, grid, partial)
    exported = export_encoder(
        space.encoder,
        format,
        Path(out),
        image_size=size,
        results=None if results is None else Path(results),
        license=license,
        overwrite=overwrite,
    )
    pushed = None if push is None else push_export(push, exported.out, exported.card, private=private)
    return ExportResult(exported, pushed)
