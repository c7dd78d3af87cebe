"""The targets of prediction."""

from dataclasses import dataclass
from typing import Literal

from flexpredict.errors import UserError
from flexpredict.settings.ranges import ranged

Resolution = Literal["full", "half_bilinear", "half_max"]
Standardize = Literal["none", "feature", "position"]
Norm = Literal["layer", "tanh", "none"]


@dataclass
class Targets:
    """The targets of prediction: features of the target encoder.

    Args:
        norm: how each token is normalized: "layer" (published), "tanh" of the features as they are, or "none".
        standardize: over recent images: "none" (published); "feature" gives each feature mean 0 and deviation 1;
            "position" also subtracts the mean at each position, so that nothing is gained by knowing the position
            alone (by default "feature" in small runs).
        layers: predict the mean of this many last layers of the target encoder, each layer-normed (I-JEPA: 1,
            data2vec: 6 of ViT-B's 12; by default 1 for ijepa, half of the layers for data2vec).
        resolution: of patches ("full"), or of cells of 2x2 patches, resized by "half_bilinear" or "half_max" (paper:
            the full resolution is best).
    """

    norm: Norm = "layer"
    standardize: Standardize | None = None
    layers: int | None = ranged(None, least=1)
    resolution: Resolution = "full"

    @property
    def cell(self) -> int:
        """Side of a predicted cell, in patches."""
        return 1 if self.resolution == "full" else 2

    def check(self, depth: int) -> None:
        """Refuse settings that do not fit an encoder of this many layers."""
        if self.layers is not None and self.layers > depth:
            raise UserError(f"targets.layers={self.layers}, but the encoder has {depth} layers. Choose 1 to {depth}.")
        if self.norm == "tanh" and (self.layers or 1) > 1:
            raise UserError(
                "targets.norm=tanh takes the last layer as it is, but targets.layers averages several, each "
                "layer-normed. Use targets.layers=1, or targets.norm=layer."
            )
