"""Dense tasks: a head on frozen patch features, whose answers are up-sampled to maps with a number for each pixel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.evaluation.results import Result, ResultPlaces
from flexpredict.settings.extraction import Extraction, SizeLike
from flexpredict.settings.ranges import Checked, ranged
from flexpredict.settings.recipe import Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from flexpredict.evaluation.dense.images import Gallery
    from flexpredict.features.workspace import Workspace


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

    def open_workspace(self, task: str) -> "Workspace":
        """The encoder, in a single process: passes over the images are not shared."""
        from flexpredict.features.workspace import launch_one, open_workspace

        return open_workspace(self.encoder, launch_one(self.accelerator, task), self)

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

    def save_with(self, result: Result, gallery: "Gallery", fabric: "Fabric") -> None:
        """The result, and pictures beside it."""
        self.save(result, fabric)
        if gallery.pictures and self.out is not None:
            folder = result.files[0].with_suffix("")
            gallery.write(folder)
            result.files.append(folder)
