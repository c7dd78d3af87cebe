"""The one place where weights are opened, whatever their name stands for."""

from pathlib import Path

from flexpredict.encoders.checkpoints.reading import read_checkpoint
from flexpredict.encoders.hugging_face_encoder import open_hugging_face
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.loaded_weights import LoadedWeights, read_own
from flexpredict.encoders.names import EncoderName, parse_grid, resolve_name
from flexpredict.encoders.timm_encoder import open_timm, open_timm_folder, weights_of_timm
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.hub_connection import download
from flexpredict.settings.extraction import Which


def open_encoder(
    name: str | Path,
    *,
    which: Which = "target",
    heads: int | None = None,
    grid: tuple[int, int] | str | None = None,
    partial: bool = False,
) -> ImageEncoder:
    """Load an encoder, ready for evaluation: `encoder(images)` gives features of patches, B N D.

    What a file holds is found out by looking inside, not by its name.

    Args:
        name: what to load:
            a run folder or its encoder.safetensors;
            a checkpoint of I-JEPA, StoP, MAE, DINO, iBOT, DINOv2, timm …: .pth.tar, .pth, .pt, .bin or .safetensors;
            a folder in the layout of Hugging Face or timm, with a config.json;
            timm:NAME, any model of timm with its pre-trained weights (timm:NAME,pretrained=no: untrained);
            hf:NAME, a vision model of the Hugging Face hub, or a folder, run by transformers.
        which: of two encoders, "target" (the moving average, the teacher) or "context" (the one that is trained).
        heads: attention heads of a checkpoint that does not tell; the same as FILE,heads=12.
        grid: rows and columns of patches, (4, 16) or "4x16", of a checkpoint that does not tell; the same as
            FILE,grid=4x16.
        partial: accept a checkpoint although tensors are missing or left over.
    """
    resolved = resolve_name(name)
    grid = parse_grid(grid) if isinstance(grid, str) else grid
    encoder: ImageEncoder
    if resolved.kind == "timm":
        encoder = open_timm(resolved)
    elif resolved.kind == "timm folder":
        encoder = open_timm_folder(resolved)
    elif resolved.kind in ("hf", "hf folder"):
        encoder = open_hugging_face(resolved)
    else:
        loaded = load_weights(resolved, which=which, heads=heads, grid=grid, partial=partial)
        encoder = ViTEncoder.of(loaded, resolved.text)
    return encoder.eval().requires_grad_(False)


def load_weights(
    name: EncoderName,
    *,
    which: Which = "target",
    heads: int | None = None,
    grid: tuple[int, int] | None = None,
    partial: bool = False,
) -> LoadedWeights:
    """The weights of a plain vision transformer, part by part; any other model is refused. Arguments: see above."""
    if name.kind in ("run", "encoder file"):
        return read_own(name.path, which)
    if name.kind == "timm":
        encoder = open_timm(name)
        return weights_of_timm(encoder.model, f"timm's {name.model}", encoder.image_size)
    return read_checkpoint(
        download(name.model) if name.kind == "hf" else name.path,
        which=which,
        heads=name.heads if heads is None else heads,
        grid=grid or name.grid,
        partial=partial,
    )
