"""Weights of a plain vision transformer, wherever they came from, and what is known about them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from flexpredict.data.pixels import MEAN, STD
from flexpredict.errors import UserError
from flexpredict.model.building import model_facts, scale_embedding
from flexpredict.model.encoder import Encoder
from flexpredict.runs.checkpoint import last_checkpoint, model_tensors, read_state
from flexpredict.runs.encoder_file import EncoderSpec, Trained, read_encoder
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import Pooling, Which


@dataclass
class LoadedWeights:
    """An encoder as tensors under timm's names."""

    format: str  # what wrote them, in words; empty for flexpredict itself
    role: str  # "target encoder", "context encoder", or "encoder" where there is only one
    spec: EncoderSpec  # how to build the encoder
    tensors: dict[str, Tensor]  # its weights, float32
    context: dict[str, Tensor] | None = None  # those of the context encoder, where both were read
    # All tensors of the file as they are, for those who want its predictor too.
    everything: dict[str, Tensor] = field(default_factory=dict)
    decoder_heads: int | None = None  # attention heads of a masked autoencoder's decoder, where a config.json tells
    # Number of tensors that are not part of the encoder, by what they belong to.
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)  # assumptions that were made, in sentences
    mean: tuple[float, ...] = MEAN  # of the pixels it was trained with
    std: tuple[float, ...] = STD
    trained: Trained | None = None  # how far the run had come, where that is known
    pretrained_on: tuple[str, ...] = ()  # names of the images of the run, where that is known

    @property
    def pooling(self) -> Pooling:
        """How its own head makes one vector of an image.

        Nothing in I-JEPA trains a class token, so patches are averaged in our own encoders even where there is one,
        unless they were begun with weights that are pooled by it: those say so (`global_pool`).
        """
        usual = "token" if self.format and self.spec.class_token else "avg"
        return "class" if self.spec.options.get("global_pool", usual) == "token" else "mean"

    def build(self) -> Encoder:
        """The encoder with these weights, in evaluation mode."""
        encoder = self.spec.build()
        encoder.vit.load_state_dict(self.tensors, strict=False)  # whoever read them has checked what is missing
        return encoder.eval()

    def in_words(self) -> tuple[str, ...]:
        """What it is and what was left out, a line each."""
        lines = [f"{self.format}, {self.role}: {self.architecture()}"] if self.format else []
        if self.left_out:
            counted = ", ".join(f"{part} ({count})" for part, count in sorted(self.left_out.items()))
            lines.append(f"Left out, with the number of tensors: {counted}")
        return (*lines, *self.notes)

    def architecture(self) -> str:
        """The encoder in words."""
        spec, facts = self.spec, model_facts(self.spec.model, self.spec.options)
        tokens = " with a class token" if spec.class_token else ""
        return (
            f"{facts.depth} layers of {facts.dim}, {facts.heads} heads{tokens}; patches of {spec.patch_size} in "
            f"images of {spec.image_size[0]}x{spec.image_size[1]} ({spec.grid[0]}x{spec.grid[1]}), "
            f"{'sin-cos' if spec.positions == 'sincos' else spec.positions} positions"
        )


def read_own(path: Path, which: Which = "target") -> LoadedWeights:
    """The target encoder of a run folder or encoder file, or the context encoder of a run's last checkpoint."""
    checkpoint = last_checkpoint(RunFolder(path).checkpoints) if path.is_dir() else None
    encoder, spec, role, trained = read_encoder(path)
    tensors = dict(encoder.vit.state_dict())
    if which == "context":
        if checkpoint is None:
            raise UserError(
                f"The context encoder is in the checkpoints of a run, and there are none in {path}. Leave which out "
                "for the target encoder."
            )
        role, tensors = "context encoder", model_tensors(checkpoint, "context_encoder.vit.")
        trained = Trained(int(read_state(checkpoint)["step"]), None if trained is None else trained.steps)
    return LoadedWeights("", role, spec, tensors, trained=trained, pretrained_on=_images_of_run(path))


def untrained(path: Path) -> LoadedWeights:
    """The encoder of a run folder or encoder file with new weights: those of the run's seed, where that is known."""
    spec, config = read_encoder(path).spec, _config_of_run(path)
    encoder = spec.build(config.get("seed", 0))
    scale_embedding(encoder, config.get("embedding_scale", 1.0))
    return LoadedWeights("", "untrained encoder", spec, dict(encoder.vit.state_dict()))


def _images_of_run(path: Path) -> tuple[str, ...]:
    data = _config_of_run(path).get("data")
    return (data,) if isinstance(data, str) else tuple(data) if isinstance(data, list) else ()


def _config_of_run(path: Path) -> dict[str, Any]:
    """Of the run that this is, or that the file lies in; empty where it is missing or damaged."""
    try:
        return RunFolder(path if path.is_dir() else path.parent).load_config()
    except UserError:
        return {}
