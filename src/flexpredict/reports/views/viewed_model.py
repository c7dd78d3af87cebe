"""A model to view: its encoder and, if available, the whole model it was trained in."""

from dataclasses import dataclass
from pathlib import Path

import torch

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.names import resolve_name
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.runs.checkpoint import last_checkpoint
from flexpredict.runs.run_folder import RunFolder
from flexpredict.sizes import Grid, Size
from flexpredict.studies.analyses.opening import OpenedModel, open_model

_MOST_PATCHES = 20  # per side: more would take long on a CPU and be too small to point at


@dataclass(frozen=True, eq=False)
class ViewedModel:
    """A model to view. opened: the model that the encoder was trained in, with its predictor and positions."""

    encoder: ImageEncoder
    opened: OpenedModel | None = None

    @property
    def image_size(self) -> Size:
        """Size of the images it gets: its own, or smaller if that gives too many patches."""
        if self.opened is not None:
            return self.opened.image_size
        own, patch = self.encoder.image_size, self.encoder.patch_size
        size = min(own[0], _MOST_PATCHES * patch[0]), min(own[1], _MOST_PATCHES * patch[1])
        try:
            self.encoder.check_size(size)
        except UserError:  # built for images of one size
            return own
        return size

    @property
    def grid(self) -> Grid:
        """Rows and columns of patches."""
        size, patch = self.image_size, self.encoder.patch_size
        return size[0] // patch[0], size[1] // patch[1]


def open_viewed(name: str | Path) -> ViewedModel:
    """Open a run at its last checkpoint, a checkpoint of I-JEPA or StoP, or any other encoder."""
    opened = _whole_model(name)
    if opened is None:
        return ViewedModel(open_encoder(name).to(_device()))
    opened.model.to(_device())
    encoder, role = opened.model.saved_encoder
    step = "" if opened.step is None else f" after step {opened.step:,}"
    return ViewedModel(ViTEncoder(encoder, str(name), f"{role}{step}").eval(), opened)


def _whole_model(name: str | Path) -> OpenedModel | None:
    resolved = resolve_name(name)
    if resolved.kind == "run":
        has_checkpoint = last_checkpoint(RunFolder(resolved.path).checkpoints) is not None
        return open_model(name) if has_checkpoint else None
    if resolved.kind != "checkpoint":
        return None
    try:
        return open_model(name)
    except UserError:  # an encoder without a predictor, as most are
        return None


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
