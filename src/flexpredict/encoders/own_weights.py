"""Encoders that flexpredict trained: of a run folder, or of an encoder file by itself."""

from pathlib import Path

from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.errors import UserError
from flexpredict.runs.checkpoint import last_checkpoint, model_tensors, read_state
from flexpredict.runs.encoder_file import read_encoder
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import Which


def read_own(path: Path, which: Which = "target") -> LoadedWeights:
    """The target encoder of a run folder or encoder file, or the context encoder of a run's last checkpoint."""
    checkpoint = last_checkpoint(RunFolder(path).checkpoints) if path.is_dir() else None
    encoder, spec, role = read_encoder(path)
    tensors = dict(encoder.vit.state_dict())
    if which == "context":
        if checkpoint is None:
            raise UserError(
                f"The context encoder is in the checkpoints of a run, and there are none in {path}. Leave which out "
                "for the target encoder."
            )
        role, tensors = "context encoder", model_tensors(checkpoint, "context_encoder.vit.")
    step = None if checkpoint is None else int(read_state(checkpoint)["step"])
    return LoadedWeights("", role, spec, tensors, step=step)
