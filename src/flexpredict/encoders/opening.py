"""Opens encoders and weights of every kind by name."""

from torch import nn

from flexpredict.encoders.arguments import EncoderChoice, EncoderOptions, parse_grid
from flexpredict.encoders.checkpoints.reading import read_checkpoint
from flexpredict.encoders.hugging_face_encoder import open_hugging_face
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.loaded_weights import LoadedWeights, read_own, untrained
from flexpredict.encoders.names import EncoderName, resolve_name
from flexpredict.encoders.timm_encoder import open_timm, open_timm_folder, open_timm_model, weights_of_timm
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.hub_connection import download
from flexpredict.settings.parameters import takes_fields_of


@takes_fields_of(EncoderChoice)
def open_encoder(asked: EncoderChoice) -> ImageEncoder:
    """Load an encoder, ready for evaluation: `encoder(images)` gives features of patches, B N D.

    It may be a run folder or its encoder.safetensors; a checkpoint of I-JEPA, StoP, MAE, DINO, iBOT, DINOv2, timm …
    (.pth.tar, .pth, .pt, .bin or .safetensors); a folder in the layout of Hugging Face or timm, with a config.json;
    timm:NAME, any model of timm with its pre-trained weights; hf:NAME, a vision model of the Hugging Face hub, or a
    folder, run by transformers; a `Run`; or a timm model. RUN,pretrained=no and timm:NAME,pretrained=no are the same
    encoders untrained. A file is recognized by its content, not by its name. An encoder that is already open is
    returned as it is.
    """
    if isinstance(asked.encoder, nn.Module):
        if EncoderOptions(which=asked.which, heads=asked.heads, grid=asked.grid, partial=asked.partial) != _USUAL:
            raise UserError("which, heads, grid and partial are for an encoder given by its name. Leave them out.")
        return asked.encoder if isinstance(asked.encoder, ImageEncoder) else open_timm_model(asked.encoder)
    name = resolve_name(asked.encoder)
    encoder: ImageEncoder
    if name.kind == "timm":
        encoder = open_timm(name)
    elif name.kind == "timm folder":
        encoder = open_timm_folder(name)
    elif name.kind in ("hf", "hf folder"):
        encoder = open_hugging_face(name)
    else:
        encoder = ViTEncoder.of(load_weights(name, asked), name.text)
    return encoder.eval().requires_grad_(False)


load = open_encoder  # its name in Python, flexpredict.load
_USUAL = EncoderOptions()


def load_weights(name: EncoderName, options: EncoderOptions = _USUAL) -> LoadedWeights:
    """The weights of a plain vision transformer, part by part; any other model is refused."""
    if name.kind in ("run", "encoder file"):
        return read_own(name.path, options.which)
    if name.kind == "untrained":
        return untrained(name.path)
    if name.kind == "timm":
        encoder = open_timm(name)
        return weights_of_timm(encoder.model, f"timm's {name.model}", encoder.image_size)
    return read_checkpoint(
        download(name.model) if name.kind == "hf" else name.path,
        which=options.which,
        heads=options.heads or name.heads,
        grid=name.grid if options.grid is None else parse_grid(options.grid),
        partial=options.partial,
    )
