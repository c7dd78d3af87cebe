"""`flexpredict export`: an encoder for the libraries people already use."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.settings.extraction import SizeLike
from flexpredict.settings.parameters import takes_fields_of

if TYPE_CHECKING:
    from flexpredict.exports.exporting import ExportResult


@dataclass(frozen=True, kw_only=True)
class ExportSettings(EncoderChoice):
    """Settings of `export`.

    Args:
        format: the format.
        out: the folder (timm, hf) or file to write.
        image_size: resize positions for images of another size, 160 or 192x256 (default: as trained).
        results: folder of the JSON files of evaluations; results of this encoder go into the model card.
        license: license of the weights for the model card, such as apache-2.0.
        overwrite: replace an earlier export.
        push: upload the export with its card to the Hugging Face Hub, as this model: USER/NAME.
        private: make a new model on the Hub visible to its owner only.
    """

    format: Literal["timm", "hf", "official", "onnx", "torch-export"] = field(kw_only=False)
    out: str | Path = field(kw_only=False)
    image_size: SizeLike | None = None
    results: str | Path | None = None
    license: str | None = None
    overwrite: bool = False
    push: str | None = None
    private: bool = False


@takes_fields_of(ExportSettings)
def export(asked: ExportSettings) -> "ExportResult":
    """Write an encoder in the format of another library, with a model card.

    The library itself reads back what was written. Unless that gives the same features as the original, nothing is
    left behind. The formats: timm, a folder for timm.create_model("local-dir:FOLDER", pretrained=True); hf, a folder
    for transformers (IJepaModel, or ViTModel, Dinov2Model, BeitModel as the encoder needs); official, a .pth.tar file
    as published for I-JEPA and StoP, for a run with its predictor; onnx, an .onnx file for onnxruntime; torch-export,
    a .pt2 file for torch.export.load. The last two take pixel_values (normalized images) and give patch_features and
    pooled.
    """
    from flexpredict.exports.exporting import check_place, write_export
    from flexpredict.features.workspace import open_workspace
    from flexpredict.training.engine import launch_fabric

    check_place(asked)
    return write_export(open_workspace(asked.encoder, launch_fabric("cpu", 1), asked).encoder, asked)
