"""Which weights a plain vision transformer has, so that formats can refuse what they have no place for."""

from collections.abc import Collection

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError

_BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")


def refuse_other_weights(encoder: ViTEncoder, kind: str, optional: Collection[str] = ()) -> None:
    """Refuse an encoder that has other weights than those of I-JEPA's architecture and the optional ones.

    kind: the architecture of the format, in words; optional: names, those within a block without its number.
    """
    needed = {"pos_embed", *_pair("patch_embed.proj"), *_pair("norm")}
    needed |= {f"blocks.{name}" for layer in _BLOCK for name in _pair(layer)}
    found = {_without_number(name) for name in encoder.encoder.vit.state_dict()}
    unknown, missing = sorted(found - needed - set(optional)), sorted(needed - found - set(optional))
    if unknown or missing:
        words = [f"has no place for {', '.join(unknown)}"] if unknown else []
        words += [f"needs {', '.join(missing)}, which it lacks"] if missing else []
        raise UserError(
            f"{encoder.what} cannot be exported for {kind}, which {' and '.join(words)}. Use format=timm, onnx or "
            "torch-export."
        )


def refuse_rectangles(encoder: ViTEncoder, kind: str, formats: str) -> None:
    """Refuse images that are not square, for a library that resizes their positions although they fit.

    kind: the architecture of the format, in words; formats: that remain.
    """
    height, width = encoder.image_size
    if height != width:
        raise UserError(
            f"{encoder.what} would be {kind}, which resizes the positions of images that are not square ({height}x"
            f"{width}) as if they were. Give a square image_size, or use format={formats}."
        )


def _pair(layer: str) -> tuple[str, str]:
    return f"{layer}.weight", f"{layer}.bias"


def _without_number(name: str) -> str:
    head, _, rest = name.partition(".")
    return f"{head}.{rest.partition('.')[2]}" if head == "blocks" else name
