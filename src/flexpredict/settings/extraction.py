"""How features are extracted by a frozen encoder."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

from flexpredict.errors import UserError
from flexpredict.settings.ranges import Checked, ranged
from flexpredict.settings.recipe import Precision, parse_image_sizes

Pooling: TypeAlias = Literal["mean", "class"]
Which: TypeAlias = Literal["target", "context"]
SizeLike: TypeAlias = int | str | tuple[int, int]


class DescribedEncoder(Protocol):
    """The part of an encoder's interface that settings need."""

    image_size: tuple[int, int]

    def fingerprint(self) -> str: ...

    def pooling_in_words(self, pooling: Pooling | None) -> str: ...


@dataclass(frozen=True, kw_only=True)
class PatchExtraction(Checked):
    """How features of patches are extracted by a frozen encoder.

    Args:
        layers: number of last layers whose features are concatenated (paper: 1 and 4).
        image_size: height x width, 224 or 256x192 (default: as trained).
        batch_size: images encoded at a time.
        workers: processes that read images.
        precision: precision of the encoder; bf16-mixed is faster on GPUs.
    """

    layers: int = ranged(1, least=1)
    image_size: SizeLike | None = None
    batch_size: int = ranged(64, least=1)
    workers: int = ranged(0, least=0)
    precision: Precision = "32-true"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_image_size(self.image_size)
        _require_known("precision", self.precision, get_args(Precision))


@dataclass(frozen=True, kw_only=True)
class Extraction(PatchExtraction):
    """How features of images are extracted by a frozen encoder.

    Args:
        pooling: mean of the patches, or class token (default: the encoder's own).
    """

    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_known("pooling", self.pooling, (None, *get_args(Pooling)))

    def size_for(self, encoder: DescribedEncoder) -> tuple[int, int]:
        """Height and width of the images that this encoder is given."""
        return one_image_size(self.image_size) or encoder.image_size

    def describe(self, encoder: DescribedEncoder) -> dict[str, Any]:
        """Everything that determines the features, as plain values."""
        height, width = self.size_for(encoder)
        return {
            "fingerprint": encoder.fingerprint(),
            "layers": self.layers,
            "pooling": encoder.pooling_in_words(self.pooling),
            "image_size": f"{height}x{width}",
            "crop": "largest centered",
            "precision": self.precision,
        }

    def settings(self, encoder: DescribedEncoder) -> str:
        """Settings other than the defaults, in words: "last 4 layers, class pooling, 256x192"."""
        height, width = size = self.size_for(encoder)
        unusual = {
            f"last {self.layers} layers": self.layers != 1,
            f"{self.pooling} pooling": self.pooling not in (None, encoder.pooling_in_words(None)),
            f"{height}x{width}": size != encoder.image_size,
        }
        return ", ".join(words for words, said in unusual.items() if said)


def _require_known(name: str, value: str | None, known: tuple[str | None, ...]) -> None:
    if value not in known:
        raise UserError(f"{name}={value} is not known. Use one of: {', '.join(filter(None, known))}.")


def one_image_size(value: SizeLike | None) -> tuple[int, int] | None:
    """224, "224", "256x192" (height x width) or a pair -> height and width."""
    if value is None:
        return None
    sizes = parse_image_sizes(value)
    if len(sizes) > 1:
        raise UserError(f"image_size={value} names several sizes. Give one, such as 224 or 256x192.")
    return sizes[0]
