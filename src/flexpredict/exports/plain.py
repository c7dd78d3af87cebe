"""The plain vision transformer inside an encoder that another library runs, so that it can be exported too."""

from pathlib import Path

from flexpredict.encoders.checkpoints.config_file import is_plain
from flexpredict.encoders.checkpoints.reading import read_checkpoint
from flexpredict.encoders.hugging_face_encoder import HuggingFaceEncoder
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.encoders.timm_encoder import TimmEncoder, weights_of_timm
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import outputs_of
from flexpredict.exports.verification import verify
from flexpredict.model.timm_parts import VisionTransformer, timm


def plain(encoder: ImageEncoder) -> ViTEncoder:
    """The same encoder with its weights part by part; refused unless it gives the same features."""
    if isinstance(encoder, ViTEncoder):
        return encoder
    loaded = None
    if isinstance(encoder, TimmEncoder):
        loaded = _of_timm(encoder)
    elif isinstance(encoder, HuggingFaceEncoder):
        loaded = _of_hugging_face(encoder)
    if loaded is None:
        raise UserError(
            f"{encoder.what} is not a plain vision transformer whose weights are known here part by part, so it "
            "cannot be exported. Take it from the library that it came from."
        )
    made = ViTEncoder.of(loaded, encoder.name, what=encoder.what, pooling=encoder.pooling)
    verify(made, lambda images: outputs_of(encoder, images), "a plain vision transformer")
    return made


def _of_timm(encoder: TimmEncoder) -> LoadedWeights | None:
    if type(encoder.model) not in (VisionTransformer, timm.models.beit.Beit):
        return None
    return weights_of_timm(encoder.model, encoder.what, encoder.image_size)


def _of_hugging_face(encoder: HuggingFaceEncoder) -> LoadedWeights | None:
    """From the files that transformers read it from."""
    from transformers.utils import cached_file

    try:
        folder = Path(cached_file(encoder.model.name_or_path, "config.json")).parent
    except OSError:  # it was not read from files
        return None
    return read_checkpoint(folder) if is_plain(folder) else None
