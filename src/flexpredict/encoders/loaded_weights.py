"""Weights of a plain vision transformer from any source, with the facts known about them."""

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

    format: str  # the code that wrote them, in words; empty for flexpredict
    role: str  # "target encoder", "context encoder", or "encoder" where there is only one
    spec: EncoderSpec  # how to build the encoder
    tensors: dict[str, Tensor]  # its weights, float32
    context: dict[str, Tensor] | None = None  # weights of the context encoder, if both were read
    # All tensors of the file, unchanged, from which its predictor can be read.
    everything: dict[str, Tensor] = field(default_factory=dict)
    decoder_heads: int | None = None  # attention heads of a masked autoencoder's decoder, if config.json says
    # Number of tensors that are not part of the encoder, by the part they belong to.
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)  # assumptions that were made, in sentences
    mean: tuple[float, ...] = MEAN  # of the pixels it was trained with
    std: tuple[float, ...] = STD
    trained: Trained | None = None  # progress of the run, if known
    pretrained_on: tuple[str, ...] = ()  # data of the run, by name; empty if unknown

    @property
    def pooling(self) -> Pooling:
        """The default way to pool an image into one vector.

        I-JEPA does not train class tokens, so our own encoders average patches even if they have one. Encoders that
        were started from weights pooled by the class token are an exception, marked by the option `global_pool`.
        """
        usual = "token" if self.format and self.spec.class_token else "avg"
        return "class" if self.spec.options.get("global_pool", usual) == "token" else "mean"

    def build(self) -> Encoder:
        """The encoder with these weights, in evaluation mode."""
        encoder = self.spec.build()
        encoder.vit.load_state_dict(self.tensors, strict=False)  # missing tensors were checked on reading
        return encoder.eval()

    def in_words(self) -> tuple[str, ...]:
        """The contents and what was left out, one line each."""
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
                f"which=context needs a checkpoint of a run, and there is none in {path}. Leave which out for the "
                "target encoder."
            )
        role, tensors = "context encoder", model_tensors(checkpoint, "context_encoder.vit.")
        trained = Trained(int(read_state(checkpoint)["step"]), None if trained is None else trained.steps)
    return LoadedWeights("", role, spec, tensors, trained=trained, pretrained_on=_images_of_run(path))


def untrained(path: Path) -> LoadedWeights:
    """The encoder of a run folder or encoder file with new weights, drawn with the run's seed if known."""
    spec, config = read_encoder(path).spec, _config_of_run(path)
    encoder = spec.build(config.get("seed", 0))
    scale_embedding(encoder, config.get("embedding_scale", 1.0))
    return LoadedWeights("", "untrained encoder", spec, dict(encoder.vit.state_dict()))


def _images_of_run(path: Path) -> tuple[str, ...]:
    data = _config_of_run(path).get("data")
    return (data,) if isinstance(data, str) else tuple(data) if isinstance(data, list) else ()


def _config_of_run(path: Path) -> dict[str, Any]:
    """The config of this run folder, or of the run that contains this file; empty if missing or damaged."""
    try:
        return RunFolder(path if path.is_dir() else path.parent).load_config()
    except UserError:
        return {}
