"""Optional measurements of a study: transfer to other images, CLEVR counting and distance, objects in videos."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.data.sources.streams import identity
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.clevr_images import TASKS, clevr_sources
from flexpredict.evaluation.davis import DavisSettings
from flexpredict.evaluation.davis.segmentation import segment_videos
from flexpredict.evaluation.davis.videos import open_videos
from flexpredict.evaluation.probing import check_probe, run_probe
from flexpredict.evaluation.shared_images import overlap, seen_in_pretraining
from flexpredict.features.workspace import Workspace
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.probing import Probing

TRANSFER, DAVIS = "transfer, linear", "DAVIS J&F"
CLEVR = {"count": "CLEVR count", "dist": "CLEVR distance"}
_PATCHES = 30  # along the shorter side of a video, as DAVIS at 480 pixels has with patches of 16
_ALL_LABELS = Probing(labels=[1.0], neighbors=0)


@dataclass(frozen=True)
class Downstream:
    """Which of these are measured. Default: none."""

    transfer: tuple[str, ...] = ()  # names of labeled images to fit a linear probe on, and to test it on
    clevr: str | None = None  # CLEVR's folder, or scenes
    davis: str | None = None  # the folder of DAVIS, or scenes

    @classmethod
    def of(cls, transfer: Sequence[str], clevr: str | None, davis: str | None) -> "Downstream":
        if len(transfer) not in (0, 2):
            raise UserError(
                f"transfer is {' '.join(transfer)}. Give two names: labeled images to fit a probe on and others to "
                "test it on, such as pets/train pets/test."
            )
        return cls(tuple(transfer), clevr, davis)

    def check(self, pretrained_on: tuple[str, ...], console: Console) -> list[str]:
        """Open everything, so that missing data is reported before hours of training.

        Returns warnings about test images that are also training images, or that the runs will have seen.
        """
        said = []
        for name, train, test in self._probes():
            check_probe(train, test, _ALL_LABELS)
            found = overlap(train, test, console), seen_in_pretraining(pretrained_on, train, test, console)
            said += [f"{name}: {sentence}" for sentence in found if sentence]
        if self.davis is not None:
            open_videos(self.davis, "val", "2017")
        return said

    @cached_property
    def described(self) -> dict[str, Any]:
        """The settings and images that the numbers depend on; empty if nothing is measured."""
        asked = {name: value for name, value in dataclasses.asdict(self).items() if value}
        return {**asked, "images": [identity(open_source(name)) for name in self.transfer]} if asked else {}

    def in_words(self) -> str:
        """The data that each number was measured on; empty if nothing is measured."""
        said = []
        if self.transfer:
            said.append("{}: all labels of {}, tested on {}.".format(TRANSFER.capitalize(), *self.transfer))
        if self.clevr is not None:
            said.append(f"CLEVR: {self.clevr}.")
        if self.davis is not None:
            said.append(f"DAVIS J&F: {self.davis}, frames {_PATCHES} patches high.")
        return " ".join(said)

    def measure(self, encoder: ImageEncoder, folder: Path, fabric: Fabric) -> dict[str, float]:
        """The numbers in percent. folder: where to write the masks of videos."""
        numbers = {}
        for name, train, test in self._probes():
            found = run_probe(encoder, train, test, Extraction(), _ALL_LABELS, fabric=fabric)
            numbers[name] = found.numbers["linear, 100 % labels"]
        if self.davis is not None:
            height = _PATCHES * encoder.patch_size[0]
            asked = DavisSettings(data=self.davis, height=height, overlays="none", out=folder)
            numbers[DAVIS] = segment_videos(Workspace(encoder, fabric, Console(quiet=True)), asked).numbers["J&F"]
        return numbers

    def _probes(self) -> Iterator[tuple[str, ImageSource, ImageSource]]:
        """Name, training images and test images of each probe."""
        if self.transfer:
            train, test = self.transfer
            yield TRANSFER, open_source(train), open_source(test)
        if self.clevr is not None:
            both = clevr_sources(self.clevr, "train"), clevr_sources(self.clevr, "test")
            yield from zip((CLEVR[task] for task in TASKS), *both, strict=True)
