"""The plain vision transformer that an encoder opened by another library is, so that it can be handed on too."""

from pathlib import Path

from flexpredict.encoders.checkpoints.config_file import is_plain
from flexpredict.encoders.checkpoints.finding import build
from flexpredict.encoders.checkpoints.timm_models import found_in_timm
from flexpredict.encoders.frozen import FrozenEncoder, ViTEncoder, open_encoder
from flexpredict.encoders.libraries import HuggingFaceEncoder, TimmEncoder
from flexpredict.errors import UserError
from flexpredict.export.format import outputs_of
from flexpredict.export.verification import verify
from flexpredict.model.encoder import Encoder
from flexpredict.model.timm_parts import VisionTransformer, timm
from flexpredict.runs.encoder_file import EncoderSpec


def plain(encoder: FrozenEncoder) -> ViTEncoder:
    """The same encoder with its weights part by part; it has given the same features, or it is refused."""
    if isinstance(encoder, ViTEncoder):
        return encoder
    made = None
    if isinstance(encoder, TimmEncoder):
        made = _of_timm(encoder)
    elif isinstance(encoder, HuggingFaceEncoder):
        made = _of_transformers(encoder)
    if made is None:
        raise UserError(
            f"{encoder.what} is not a plain vision transformer whose weights are known here part by part, so it "
            "cannot be exported. Take it from the library that it came from."
        )
    verify(made, lambda images: outputs_of(encoder, images), "a plain vision transformer")
    return made


def _of_timm(encoder: TimmEncoder) -> ViTEncoder | None:
    if type(encoder.model) not in (VisionTransformer, timm.models.beit.Beit):
        return None
    found = found_in_timm(encoder.model, encoder.what, encoder.image_size)
    return _like(encoder, build(found), found.spec, found.in_words())


def _of_transformers(encoder: HuggingFaceEncoder) -> ViTEncoder | None:
    """Of the files that it was read from, which are here by now."""
    from transformers.utils import cached_file

    try:
        config = cached_file(encoder.model.name_or_path, "config.json")
    except OSError:  # it was not read from files
        return None
    folder = Path(config).parent
    opened = open_encoder(folder) if is_plain(folder) else None
    return _like(encoder, opened.encoder, opened.spec, opened.found) if isinstance(opened, ViTEncoder) else None


def _like(encoder: FrozenEncoder, inner: Encoder, spec: EncoderSpec | None, found: tuple[str, ...]) -> ViTEncoder:
    """By the name that was asked for, with the same pixels and the same way to make one vector of an image."""
    return ViTEncoder(
        inner,
        encoder.name,
        encoder.what,
        spec=spec,
        found=found,
        pooling=encoder.pooling,
        mean=encoder.mean,
        std=encoder.std,
    ).eval()
