"""Settings that dense tasks share: features of whole images, and pictures beside the results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flexpredict.evaluation.results import Result, ResultPlaces
from flexpredict.features.arguments import EncoderChoice
from flexpredict.settings.extraction import Extraction, SizeLike
from flexpredict.settings.ranges import Checked, ranged
from flexpredict.settings.recipe import Precision

if TYPE_CHECKING:
    import numpy as np
    from lightning_fabric import Fabric
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class DenseFeatures(EncoderChoice, Checked):
    """Features of the patches of whole images.

    Args:
        layers: number of last layers whose features are concatenated (paper: 1 and 4).
        image_size: shorter side of the images, 448; or 448x896, to which all are stretched (default: shorter side as
            trained).
        batch_size: images encoded at a time.
        workers: processes that read images.
        precision: precision of the encoder; bf16-mixed is faster on GPUs.
        accelerator: auto, cpu, cuda or mps.
    """

    layers: int = ranged(1, least=1)
    image_size: SizeLike | None = None
    batch_size: int = ranged(16, least=1)
    workers: int = ranged(0, least=0)
    precision: Precision = "32-true"
    accelerator: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.extraction()

    def extraction(self) -> Extraction:
        """How images are encoded once they have their size."""
        return Extraction(
            layers=self.layers,
            image_size=self.image_size,
            batch_size=self.batch_size,
            workers=self.workers,
            precision=self.precision,
        )


@dataclass(frozen=True, kw_only=True)
class ResultsWithPictures(ResultPlaces):
    """Where results and pictures are written.

    Args:
        pictures: number of test images to draw with what is true and what is predicted; 0 for none.
        out: folder or .json file to write the result to; pictures go into a folder beside it.
    """

    pictures: int = ranged(8, least=0)

    def save_with(self, result: Result, pictures: Mapping[str, "NDArray[np.uint8]"], fabric: "Fabric") -> None:
        """The result, and these pictures by the names of their images."""
        self.save(result, fabric)
        if pictures and self.out is not None:
            from flexpredict.evaluation.dense.pictures import write_pictures

            folder = result.files[0].with_suffix("")
            write_pictures(pictures, folder)
            result.files.append(folder)
